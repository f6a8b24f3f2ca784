"""Stored responses and conversations in the state database.

schema.py      the tables
store.py       blocking reads and writes
exchange.py    one request that stores or continues a response
references.py  stored items in the place of references to them
keeper.py      reads and writes for the event loop, and retention
"""
