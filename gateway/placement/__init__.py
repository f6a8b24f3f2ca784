"""Where bundled runtimes run.

runtime.py   what the pools need of one
local.py     a supervised child process on this machine, reached over a Unix socket
lent.py      one that the supervisor of several workers has started for all of them
"""
