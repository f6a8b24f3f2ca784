"""Queues, batches and responses: the time and the copy of each request.

The decisions are pure; `dispatcher` acts.

dispatcher.py      pending requests to idle copies; decoupled models get one at a time; batcher.py: in batches
queue.py           the next batch, priorities, and whether to wait for more; bucket.py: requests that may share a batch
latency.py         time by batch size
batch_inputs.py    inputs and outputs that depend on the shapes in a batch
intake.py          requests checked and converted; outlet.py: outputs cut for each request, large ones in threads
pending.py         one request until its response, its failure, and the counts of executions
responses.py       several responses to one request, in their order
cached.py          the response cache, and its entries
clock.py           the time, one timer for many deadlines, and waits until nothing runs
"""
