"""One suite that every adapter passes: before a real server, a stand-in of one, or a foreign one.

subject.py    a system and what it is to be asked: all that the suite knows of it
asks.py       requests to give a subject: chats, tensors, calls of an app
nonconforming.py  how a check reports what is wrong
answers.py    checks of what a server answers: infer, stream, metadata, health, readiness, signals, orders
failures.py   checks of what goes wrong: each failure is told by its class
conduct.py    checks of manners: cancellation, deadlines, credentials, bounds
impostor.py   a server that misbehaves as told, in the place of one that cannot be made to; acts.py: how
metrics.py    what a server says of itself
bench.py      adapters and impostors for one check, closed behind it; checks.py: the form of a check
suite.py      all checks, and `examine(subject)`
cell.py       a result; matrix.py: results as the page has them
foreign.py    a subject of any server, by what its adapter tells of it
"""
