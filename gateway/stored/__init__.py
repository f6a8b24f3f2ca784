"""Stored responses and conversations, in the state database.

schema.py   the tables
store.py    reads and writes; blocks
exchange.py one request: what it continues, and what is stored of it
keeper.py   the same for the event loop: writes behind in batches, reads in threads of its own, deletes what is too old
"""
