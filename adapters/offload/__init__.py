"""Codec work on large bodies, outside of the process that serves.

codecs.py        codecs that the gateway and the tensor runtime both run
messages.py      the same for messages that the gateway turns into chats
worker_queue.py  selects where a call runs; a worker process, and the calls that wait for it
tenant_queue.py  their order
process.py       the server's side of a worker process
worker.py        its own side
jobs.py          calls, what they may cost, and their outcomes
packets.py       the form in which arguments and results cross

A decoder that is written in C holds Python's lock for as long as it runs, and so does a copy of many bytes. A thread
therefore does not bound how long other requests wait; a process does.
"""

from adapters.offload.jobs import PICTURE, SOUND
from adapters.offload.worker_queue import LARGE, SCANNED, TENANT, decode_file, parse, run, scan

__all__ = ["LARGE", "PICTURE", "SCANNED", "SOUND", "TENANT", "decode_file", "parse", "run", "scan"]
