"""Ensembles with their own processes: a request passes through all steps without returning to the server.

In the server:
placement.py   the members of an ensemble, as a process loads them; the ensembles that a process cannot run
copy.py        one process, as the scheduler sees it; worker.py: as a copy does
scheduler.py   the scheduler: requests for the processes, and such as run step by step
messages.py    the result of an execution, as it is sent

In the process:
loading.py     loads the members; warming.py: warms them up
execution.py   executes requests, step by step; steps.py: one step, and one request
arrays.py      a member that receives joined arrays; requests.py: one that receives requests whole
joined.py      values of all requests of an execution, joined
calls.py       one request for one member, and its outcome
progress.py    the present step, in memory that both sides see
"""
