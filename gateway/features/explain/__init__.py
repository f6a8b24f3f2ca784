"""The explanation of a route, for the command line, the admin listener and a response header.

why.py       the decision for a described request, step by step
text.py      explanations, bindings and the times of rollouts as text
header.py    an explanation as a response header
cases.py     tests of a policy
graphs.py    the graphs of pipelines
replicas.py  the rules of the number of replicas, in words
"""
