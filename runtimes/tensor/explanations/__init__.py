"""Explanations of answers: which part each feature has in them (Shapley values).

background.py     the rows that stand for absent features, from the model's folder
sampling.py       coalitions of features and their values, without I/O
sampled.py        asks the model for mixtures of rows, within a budget and a deadline
exact.py          copies of models of trees, which compute their contributions themselves
explanation.py    the answer, and the check that its parts add up
making.py         the explainer that a configuration selects
"""
