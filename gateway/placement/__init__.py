"""Where runtimes run.

runtime.py   what the pools need of one
local.py     a supervised child process on this machine, reached over a Unix socket or loopback
launch.py    how that is started; programs.py: other people's servers, such as vLLM; ports.py: where they listen
guard.py     a program between us and another's server, which it never lets outlive us
lent.py      one that the supervisor of several workers has started for all of them
"""
