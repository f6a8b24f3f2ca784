"""The kinds of nodes that request several drafts of an answer and select one.

drafts.py  runs the nodes that write the drafts
judge.py   the best draft, by the verdicts of a model
agree.py   the draft on which most of the others agree
"""
