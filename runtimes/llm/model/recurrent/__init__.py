"""Layers that remember a state of one size, beside layers with attention.

states.py    the cache of states, and the way of a step's tokens through it
mamba.py     Mamba-2; delta.py: the gated delta rule
families.py  the families of such decoders, one row for each; features.py: what is special in them
"""
