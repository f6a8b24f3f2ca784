"""The explanation of a route, for the command line, the admin listener and a response header.

requests.py  builds a request from a description
why.py       the decision for a request, step by step
text.py      an explanation as text
header.py    an explanation as a response header
cases.py     tests of a policy
bindings.py  the bindings of message brokers
graphs.py    the graphs of pipelines
durations.py how long the steps of rollouts need
replicas.py  the rules of the number of replicas, in words
cli.py       `headrace check` and `headrace explain`
"""
