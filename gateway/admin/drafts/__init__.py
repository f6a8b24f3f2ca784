"""Drafts of the configuration: an operator reads, checks, replays and applies the file over the admin API.

Each draft is read in a process of its own, within bounds of time and memory. A secret of the file leaves the gateway
as a placeholder, and a draft with the placeholder has the secret again.

orders.py        the messages between the gateway and the process
process.py       runs the process within its bounds
child.py         the process: decodes an order and writes its result
work.py          the work of each order: show, check, replay
placeholders.py  finds the secrets of a text; secrets ↔ placeholders
file.py          the file: its revision, whether it may be replaced, the replacement
history.py       the versions of the file that were in force, encrypted in the state database
"""
