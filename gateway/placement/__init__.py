"""Where bundled runtimes run.

local.py   a supervised child process on this machine, reached over a Unix socket
"""
