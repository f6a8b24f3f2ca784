"""Experiments: values that clients report for requests, and the views of operators.

inbox.py    writes the values in batches; a value is stored when its report is answered; the metric of values
feedback_front.py  `/v1/feedback`: reads, checks and stores reports
cli.py      `headrace experiment`

The state, the decisions and the one decider are those of `gateway.features.rollouts`.
"""
