"""All endpoints, preserved across reloads.

fleet.py          the endpoints of all pools, and their change by a new configuration
member.py         an endpoint with its connections, probe, signals and runtime
members.py        all running and draining endpoints
desired.py        the endpoints that a pool should have: file, discovery, operators
operations.py     changes by operators: add, drain, remove, weigh
runtime.py        the interface of a runtime that this or another process started
standing.py       the measurements and the state of pools that processes exchange
signals.py        the load that servers report
protocol_sync.py  whether the endpoints of a pool with a detected protocol agree
server_tls.py     the certificates of the listeners
"""
