"""Explanations of answers: which part each feature has in them (Shapley values).

background.py     the rows that stand for absent features, from the model's folder
sampling.py       coalitions of features and their values, without I/O
estimates.py      how values are estimated, in rounds of coalitions
permutations.py   all coalitions of few features, or permutations of many
kernel.py         a regression on coalitions: Kernel SHAP
occlusion.py      the output without each feature in turn
games.py          what the features of a request are, and the rows of their coalitions
words.py          the words of a text as features, with their places
row_requests.py   asks the model for the outputs of rows, in its own batches
sampled.py        an explanation by mixtures of rows, within a budget and a deadline
exact.py          copies of models of trees, which compute their contributions themselves
explanation.py    the answer, and the check that its parts add up
making.py         the explainer that a configuration selects
"""
