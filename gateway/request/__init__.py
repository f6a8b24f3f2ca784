"""The path of a request between the doors and the servers.

spine.py            the story in one function: decide, prepare, reserve, call, end; and the observers of it
client_exchange.py  the request of a client on that path
core.py             what all requests share; ends every exchange in one place
services.py         the part of it that steps of pipelines and copies share too
snapshot.py         everything that one request reads, replaced as a whole by a reload
route_plan.py       a decision in its running form
observers.py        what only some routes and requests have: comparisons, hidden errors, sequences, texts of traces
sealed_ids.py       ids of stored responses that have something sealed in them
path_parts.py       parts of the path: facts, deadlines, rewriting, charges
"""
