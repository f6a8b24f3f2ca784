"""The pure parts of batches.

lines.py      one line of an input file, and the facts that its examination returns
order.py      the order in which lines run, and duplicate ids
states.py     the states of a batch, and its counts
admission.py  how many lines may run beside live requests
attempts.py   whether a line that failed runs again
windows.py    the completion window that a client requests
"""
