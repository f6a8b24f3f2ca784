"""Ensembles: models whose requests pass through other models of the same repository.

stages.py       the steps that some outputs need, where decoupled models divide them, and the tensors between steps
scheduler.py    the scheduler of an ensemble; its requests pass through steps with several responses too
execution.py    one request on its way through the steps
outcomes.py     responses and errors of steps as those of the ensemble, and the sequence that a response names
processes/      ensembles with processes of their own
"""
