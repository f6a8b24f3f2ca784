"""Shadow traffic: which requests are copied, the counts of compared answers, and the verdict.

live.py      a shadow in one process: its draws, its bounds, its counts
pairs.py     counts of compared pairs: they add up over processes and restarts
verdict.py   whether the shadow's answers differ, valid at every look
planned.py   the shadows of a configuration
identity.py  the identity of what is compared: another one starts anew
"""
