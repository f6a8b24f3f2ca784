"""CloudEvents 1.0: events as headers and a body (binary mode), or as one JSON object (structured mode).

event.py       an event, and the check of its attributes
decode.py      a message → an event
encode.py      an event → headers and a body
timestamps.py  RFC 3339
"""
