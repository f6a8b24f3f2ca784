"""Runtimes: servers that the gateway starts.

local.py        a supervised child process
numbers.py      the replicas of each pool that should run
arguments.py    the arguments of bundled runtimes
ray/            replicas in a Ray cluster
launch.py       how the process is started, and its address
code.py         the repository of the Python files of pipelines
programs.py     commands of other projects' servers, such as vLLM
environment.py  environment variables of a runtime
ports.py        free ports of loopback
guard.py        a small process that stops such a server when the gateway ends
lent.py         a runtime that the supervisor has started for all workers
"""
