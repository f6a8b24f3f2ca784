"""The pure parts of batches.

lines.py      one line of an input file, its examination, and whether it runs again after a failure
order.py      the order in which lines run, and duplicate ids
states.py     the states of a batch, its counts, and its completion window
admission.py  how many lines may run beside live requests
"""
