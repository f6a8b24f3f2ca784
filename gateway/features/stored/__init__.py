"""Stored responses and conversations in the state database.

store.py       blocking reads and writes
exchange.py    one request that stores or continues a response
stored_responses.py  `/v1/responses/ID`, and the storage as the front of Responses uses it
conversations.py  `/v1/conversations`
references.py  stored items in the place of references to them
keeper.py      reads and writes for the event loop, and retention
erasure.py     `headrace erase`: deletes what an end user has stored
"""
