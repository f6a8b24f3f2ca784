"""Ensembles with their own processes: a request passes through all steps without returning to the server.

In the server:
placement.py   the processes, the members that they load, and the ensembles that a process cannot run; the scheduler
messages.py    the result of an execution, as it is sent; the present step, in memory that both sides see

In the process:
loading.py     its program: loads the members, and warms them up
execution.py   executes requests, step by step
arrays.py      a member that receives joined arrays; requests.py: one that receives requests whole
calls.py       one request for one member, and its outcome; values of all requests of an execution, joined
"""
