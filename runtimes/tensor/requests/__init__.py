"""Models that receive whole requests, as those written for Triton's Python backend do (`triton_api`).

messages.py        the messages between the server and a model's process
scheduler.py       batches of requests, whose responses arrive one by one
open_request.py    one request from its arrival to its final response
outcomes.py        a model's responses and errors as the server's
custom_metrics.py  metrics that models define
"""
