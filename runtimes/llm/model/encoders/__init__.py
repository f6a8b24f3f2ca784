"""Models that attend to a whole text at once.

encoder.py   an encoder, in the manner of BERT; layers.py: its layers;
             disentangled.py: scores of tokens with distances
config.py    its shape
families.py  the families of encoders, one row for each; features.py: what is special in them
"""
