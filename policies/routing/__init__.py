"""The pool of a request.

rules.py       routes compiled: Facts → Decision
conditions.py  a route's ``when`` as predicates over Facts
rewrite.py     changes to the fields of a request
decision.py    output of the rules: compiled targets, retries, timeouts
arm_balance.py the arm of a split that is balanced by latency, load or price
drawing.py     a pipeline as lines of text
explain.py     a decision with every condition that was evaluated
"""
