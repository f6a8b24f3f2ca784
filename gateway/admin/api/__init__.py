"""The admin API, on its own listener.

guard.py    authorization of every request; denies by default
sessions.py the sessions of the console, their cookies, and requests that another site causes
endings.py  sessions and sign-ins that ended before their time, in every gateway
backend.py  the operations that the serving process implements
body.py     decodes JSON bodies, and numbers in queries
pools.py    pools and their endpoints, and orders to load models
models.py   models with their pools, prices and published facts
tenants.py  tenants, their keys and their teams
comparisons.py rollouts and experiments: their evidence, their time series, and orders to them
shadows.py  shadows and their verdicts
guards.py   guards and what they have found
usage.py    usage by label and period, and invoices
configuration.py drafts of the file: check, replay, apply, history
playground.py requests to models on behalf of a signed-in person
batches.py  batches of tenants: lists, progress, cancellation
requests.py the search of requests, and the timeline of one
explain.py  `POST /admin/explain`, and the graphs of pipelines with the counts of their steps
"""
