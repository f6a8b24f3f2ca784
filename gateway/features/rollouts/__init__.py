"""Rollouts: requests of a route move from one arm to another in steps, and back if the other arm is worse.

live.py       the rollouts of one process, across reloads
schema.py     the tables in the state database
planned.py    rollouts and experiments of a file, with the operations that differ
subjects.py   subjects that count once over all processes
values.py     values that clients report
points.py     time series
store.py      reads, counts, decides and writes in one transaction
warm.py       retains the models of old arms in our tensor runtimes
decider.py    a loop: collect counts, decide, apply the shares
operators.py  an operator's view and orders, for the admin API and the command line
metrics.py    metrics of rollouts and experiments
terminal.py   the parts of `headrace rollout` and `headrace experiment` that are the same
cli.py        `headrace rollout`

The path of a count: `policies.rollouts.live` counts the ends of requests, which `gateway/traffic/arm.py` observes.
Each second the decider collects the counts of all workers, stores their sums, lets `policies.rollouts.decide` decide,
and sends the shares to the workers. A worker without a decider continues with its shares.
"""
