"""Experiments: comparisons of a route's arms by values that clients report, and the ids that carry the arm.

signed_ids.py  request ids that contain the arm of their request, under a code that no client can forge
progress.py    an experiment as it is stored: status, counts of each set of shares, sums of values
values.py      counts the values that clients report
evidence.py    which arm is better, which one a guard stops, whether the arms have their shares
decide.py      the next status of an experiment: Thompson sampling, stopped arms, the winner
report.py      an experiment for operators, and points of its time series

Counts come from requests, as those of rollouts do; values come from `POST /v1/feedback`, each once.
"""
