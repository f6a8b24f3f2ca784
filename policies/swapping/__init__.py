"""The models that share the memory of a device: which to load, and which to stop for them. Pure; time is an argument.

models.py    the measurements of a model
swapper.py   the decision
"""
