"""Checks between sections of the file. Each yields problems or warnings with the line of the mistake.

references.py    names exist, are unique and are used
combinations.py  fields that conflict: unsafe, or without effect; runs the checks below
credentials.py   credentials that admit no client, admit every client, or contradict each other
matching.py      routes that can never match because an earlier one matches all of their requests
routing.py       models and routes whose parts conflict
attempts.py      retries, hedges and fallbacks that can never happen
pooling.py       fields of pools without effect
batches.py       settings of batches in a file that runs none
devices.py       runtimes that their device cannot hold
ray.py           runtimes in Ray clusters whose settings conflict
serve_scale.py   deployments of Ray Serve whose number of replicas the gateway cannot set
backlog.py       queues that never fill or never time out, and settings of queues that do not exist
pipelines/       mistakes in the graphs of pipelines
comparisons.py   arms of rollouts and experiments that cannot be compared, conditions that can never hold
rollouts.py      rollouts that cannot end, or whose steps move nothing
experiments.py   experiments without a metric, settings without effect
bus.py           bindings of message brokers
shadows.py       shadows that compare nothing, or would have effects
metering.py      limits and prices that conflict, or limit nothing
webhooks.py      webhooks that nothing uses, unknown ones, and addresses that are refused
advice.py        warnings: valid, but probably a mistake
"""
