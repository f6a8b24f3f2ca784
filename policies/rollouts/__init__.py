"""Rollouts: gradual moves of requests from one arm to another, which are taken back if the other arm is worse.

tally.py        counts of one share of the arms: assigned and ended requests, events, times
live.py         a rollout or an experiment in one process: the arm of each request
signed_ids.py   request ids that contain the arm, under a code that no client can forge
counting.py     the ends of requests with their events, and the counts of one process under one set of shares
progress.py     a rollout as it is stored: status, step, the counts of each share, the identity of its arms
evidence.py     e-values, proofs and intervals of the counts; bounds of times that a warm-up measures
decide.py       the next status of a rollout: hold, next step, back
report.py       a rollout for operators, and its time series
samples.py      a rollout as samples of metrics
power.py        how long a step needs to see a worse arm

Counts flow one way: each process counts, one of them decides on the sums, and all apply the shares that it stored.
"""
