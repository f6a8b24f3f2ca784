"""What Gemma 3n adds to a decoder.

per_layer.py  rows of a token for each layer, beside its embedding
streams.py    AltUp: several hidden states of a token, and a learned sum around each layer
families.py   the families, one row for each; features.py: what is special in them
"""
