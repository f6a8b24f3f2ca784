"""Queues, batches and responses: the time and the copy of each request.

The decisions are pure; `dispatcher` acts.

scheduler.py       the interface of all schedulers
dispatcher.py      moves pending requests to idle copies; batcher.py: in batches; decoupled.py: one at a time
queue.py           the next batch, and whether to wait for more; bucket.py: requests that may share a batch
queue_rules.py     priorities, and bounds of waits; arrivals.py: expected arrivals; latency.py: time by batch size
lane.py            one copy, and the sequences that are bound to it
batch_inputs.py    inputs and outputs that depend on the shapes in a batch
intake.py          requests checked and converted; outlet.py: outputs cut for each request
unfinished.py      large outputs that are cut or joined in threads
pending.py         one request until its response; joint.py: a request that was cut into parts
delivery.py        the order of responses; responses.py: several responses to one request
cached.py          the response cache; response_store.py: its entries
deadlines.py       one timer for many deadlines; clock.py: the time; quiet.py: waits until nothing runs
failures.py        errors of a copy, as errors of a request; recorder.py: counts executions
"""
