"""Models that attend to a whole text at once.

encoder.py   an encoder, in the manner of BERT; layers.py: its layers;
             disentangled.py: scores of tokens with distances; distances.py: their shape
config.py    its shape
dense.py     layers after a vector is pooled
families.py  the families of encoders, one row for each; features.py: what is special in them
"""
