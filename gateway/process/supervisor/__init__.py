"""Several worker processes on one port, and the supervisor process that starts and replaces them.

supervisor.py   the supervisor: start, reload, rolling restart, drain
workers.py      one worker process for each slot; starts another when one ends
swap.py         commits a new configuration on all workers, or on none
spawn.py        starts worker processes and releases their resources when they end
process.py      one worker process as the supervisor sees it
sockets.py      the listening sockets, bound once for each slot
loads.py        the open connections of all workers
handover.py     hands accepted connections over to workers with fewer
limit_slots.py  each worker's part of the shared table that counts limits
runtimes.py     the bundled runtimes, started once for all workers
scaling.py      the replicas of runtimes for all workers
admin.py        the admin API of all workers together
states.py       merges the workers' states into one
messages.py     messages between supervisor and worker
child.py        the entry point of a worker process
worker.py       the worker: a data plane on inherited sockets
stand_in.py     answers clients while no worker serves
control.py      the worker's private Unix socket for the supervisor
share.py        one worker's share of host-wide limits
"""
