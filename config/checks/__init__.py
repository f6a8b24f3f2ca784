"""Checks between sections of the file. Each yields problems or warnings with the line of the mistake.

references.py    names exist, are unique and are used
combinations.py  fields that conflict: unsafe, or without effect; runs the checks below
conflicts.py     fields that conflict with others of their section
credentials.py   credentials that admit no client, admit every client, or contradict each other
routing.py       models and routes whose parts conflict, routes that never match, attempts that never happen
pooling.py       fields of pools without effect, queues that never fill or never time out
runtimes.py      runtimes that their device cannot hold, conflicts with Ray clusters and Ray Serve
pipelines/       mistakes in the graphs of pipelines
comparisons.py   rollouts and experiments that cannot end, arms that cannot be compared, settings without effect
bus.py           bindings of message brokers
guards.py        guards that do not exist, are not used, or cannot be compiled
shadows.py       shadows that compare nothing, or would have effects
metering.py      limits and prices that conflict, or limit nothing
advice.py        warnings: valid, but probably a mistake
hosted.py        warnings by the catalogue of models, for `headrace check` and the console
"""
