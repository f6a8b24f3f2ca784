"""The conformance suite of all adapters, for a real server, a stand-in, or a foreign server.

subject.py   a system under test: its pool, requests, and missing features
requests.py  requests for a subject: chats, tensors, calls of an app
answers.py   checks of correct responses: infer, stream, metadata, health, readiness, signals, orders
failures.py  checks of failures: each failure has the right class of error
conduct.py   checks of conduct: cancellation, deadlines, credentials
impostor.py  a scripted server that misbehaves on demand
acts.py      its behaviours
bench.py     adapters and impostors of one check, closed after the check; the type of a check
suite.py     all checks, and `examine(check, subject)`
matrix.py    the results of checks, as data
foreign.py   builds a subject for any server from the reports of its adapter
"""
