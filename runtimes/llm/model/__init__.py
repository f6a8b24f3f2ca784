"""The computation of a step in torch, which is the reference for the other executors.

llama.py             the Llama family; model_config.py: the shape of a model; rope.py: rotary positions
encoder.py           the BERT family
embedding_config.py  the shape of an encoder, and how a model's vectors are made
attention.py         attention over pages, and the pages
matrix.py            a weight matrix, whole or quantized at load
"""
