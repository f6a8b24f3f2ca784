"""Drafts of the configuration: an operator reads, checks, replays and applies the file over the admin API.

Each draft is read in a process of its own, within bounds of time and memory. A secret of the file leaves the gateway
as a placeholder, and a draft with the placeholder has the secret again.

orders.py        the messages between the gateway and the process
process.py       runs the process within its bounds
child.py         the process: decodes an order and writes its result
work.py          the work of each order: show, check, replay
placeholders.py  secrets of a text ↔ placeholders
spans.py         finds the secrets of a text
differences.py   a text compared with another one
file.py          the file: its revision, whether it may be replaced, the replacement
apply.py         replaces the file, reloads it, and restores it if the reload is refused
history.py       the versions of the file that were in force, encrypted in the state database
"""
