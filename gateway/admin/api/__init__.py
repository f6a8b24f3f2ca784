"""The admin API, on its own listener.

front.py    paths and handlers: health, metrics, state
guard.py    authorization of every request; denies by default
backend.py  the operations that the serving process implements
body.py     decodes JSON bodies, and numbers in queries
pools.py    pools and their endpoints
tenants.py  tenants and their keys
teams.py    teams of tenants, and the teams of keys
rollouts.py rollouts and their evidence
experiments.py experiments, their effects and their time series
shadows.py  shadows and their verdicts
usage.py    usage by label and period, and invoices
configuration.py drafts of the file: check, replay, apply, history
playground.py requests to models on behalf of a signed-in person
pipelines.py graphs of pipelines with the counts of their steps
batches.py  batches of tenants: lists, progress, cancellation
requests.py the search of requests, and the timeline of one
orders.py   loading and unloading of models
explain.py  `POST /admin/explain`
"""
