"""Shadow traffic: which requests are copied, the counts of compared answers, and the verdict.

live.py      a shadow in one process: its draws, its bounds, its counts
pairs.py     counts of compared pairs, which add up over processes and restarts, and their verdict
planned.py   the shadows of a configuration, each with the identity of what it compares
"""
