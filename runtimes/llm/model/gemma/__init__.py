"""What Gemma 3n and Gemma 4 add to a decoder.

per_layer.py  rows of a token for each layer, beside its embedding
mixture.py    experts beside an MLP, each with norms of their own
streams.py    AltUp: several hidden states of a token, and a learned sum around each layer
families.py   the families, one row for each; features.py: what is special in them
"""
