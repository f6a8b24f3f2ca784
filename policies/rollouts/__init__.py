"""Rollouts: gradual moves of requests from one arm to another, which are taken back if the other arm is worse.

outcome.py      the end of a request, and the events that it may have
tally.py        counts of one share of the arms: assigned and ended requests, events, times
live.py         a rollout or an experiment in one process: the arm of each request
signed_ids.py   request ids that contain the arm, under a code that no client can forge
counting.py     the counts of one process under one set of shares
progress.py     a rollout as it is stored: status, step, and the counts of each share
bounds.py       bounds of times that are quantiles, measured in a warm-up
evidence.py     e-values, proofs and intervals of the counts
decide.py       the next status of a rollout: hold, next step, back
series.py       the time series of a rollout
samples.py      a rollout as samples of metrics
report.py       a rollout for operators
power.py        how long a step needs to see a worse arm
fingerprint.py  the identity of the arms: another one starts the rollout anew

Counts flow one way: each process counts, one of them decides on the sums, and all apply the shares that it stored.
"""
