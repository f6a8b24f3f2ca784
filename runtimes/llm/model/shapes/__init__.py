"""The shapes of parts of a model, and which numbers they can have.

checks.py     the limits of all numbers
parts.py      experts and latent attention
recurrent.py  layers with a state; gemma.py: what Gemma 3n and 4 add
"""
