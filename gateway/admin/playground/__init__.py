"""Requests of the console to models: through the fronts of the data plane, on behalf of a signed-in person.

The process that serves clients listens on a Unix socket that only this user may open. The process that serves the
admin listener sends the principal of the session with each request, so that its limits, budgets and models apply.

caller.py    the principal in a header
listener.py  the Unix socket and its door: the principal of the header, and the outcomes of the last requests
relay.py     sends a request to the socket, and forwards the response as it arrives
"""
