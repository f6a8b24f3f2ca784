"""All endpoints, preserved across reloads.

fleet.py          the endpoints of all pools, their change by a new configuration, and the protocol that they agree on
member.py         an endpoint with its connections, probe, signals and runtime
members.py        all running and draining endpoints
desired.py        the endpoints that a pool should have: file, discovery, operators
operations.py     changes by operators: add, drain, remove, weigh
runtime.py        the interface of a runtime that this or another process started
signals.py        the load that servers report
server_tls.py     the certificates of the listeners
"""
