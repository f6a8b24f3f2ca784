"""Recorded traffic: a sample of requests with their facts, decisions and ends, redacted and encrypted.

sample.py       the sample: which requests are recorded, and the draft of a request that runs
entries.py      the record of one request, as it is stored
policy.py       the decision of a configuration for a recorded request, and digests that stand for its users
contents.py     redacted bodies and answers
segments.py     the files of a folder: encrypted frames and their keys, written and read; retention and bounds
recorder.py     the queue behind the requests, and the task that writes
views.py        the prompt and the answer of one request, for a person who may read them
metrics.py      metrics of records
cli.py          `headrace record`

A record leaves the request's path with the access log's line, after the answer. `gateway/features/replay` reads
records.
"""
