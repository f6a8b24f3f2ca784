"""Several workers on one port, and the supervisor beside them, which serves no client.

supervisor.py   the supervisor: start, reload, rolling restart, drain
crew.py         the workers: one in each slot, another when it dies
swap.py         other terms for all workers at one moment, or for none
hiring.py       their beginning, and what is given back at their end
process.py      one worker, seen from the supervisor
sockets.py      the port, bound once for each slot and kept: a worker that dies takes no connection along
seats.py        their parts of the table in which limits are counted
runtimes.py     the runtimes, started once for all
desk.py         the operators' door: states.py and telemetry/merge.py make one state and one scrape of many

orders.py       what a worker is told
worker.py       the worker: a gateway whose sockets are lent
control.py      where it is told, a private Unix socket
share.py        its part of what is configured for the whole host
"""
