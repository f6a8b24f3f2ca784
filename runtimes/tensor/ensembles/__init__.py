"""Ensembles: models whose requests pass through other models of the same repository.

members.py      the models of the steps, and checks of the tensors between them
stages.py       the steps that some outputs need, and where decoupled models divide them
scheduler.py    the scheduler of an ensemble
execution.py    one request on its way through the steps; streaming.py: through steps with several responses
outcomes.py     responses and errors of steps as those of the ensemble
sequence_override.py  the sequence that a step's response names
processes/      ensembles with processes of their own
passing.py      tensors from one model to the next
dependents.py   ensembles that models of the repository are part of
"""
