"""The explanation of a route, for the command line, the admin listener and a response header.

why.py       the decision for a described request, step by step
text.py      explanations, bindings, the times of rollouts and the rules of replicas as text
header.py    an explanation as a response header
cases.py     tests of a policy
graphs.py    the graphs of pipelines
"""
