"""Experiments: comparisons of a route's arms by values that clients report.

progress.py    an experiment as it is stored: status, counts of each set of shares, sums of values
values.py      counts the values that clients report
evidence.py    which arm is better, which one a guard stops, whether the arms have their shares
decide.py      the next status of an experiment: Thompson sampling, stopped arms, the winner
samples.py     an experiment as samples of metrics
report.py      an experiment for operators, and points of its time series

Counts come from requests, as those of rollouts do; values come from `POST /v1/feedback`, each once.
"""
