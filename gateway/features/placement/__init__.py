"""Runtimes: servers that the gateway starts.

local.py        supervised child processes: their replicas, their ports, and the Python files of pipelines
ray/            replicas in a Ray cluster
launch.py       the command line, the environment and the address of a process, also of other projects' servers
guard.py        a small process that stops such a server when the gateway ends
supervisor_runtimes.py  runtimes that the supervisor has started for all workers
"""
