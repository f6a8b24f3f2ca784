"""The computation of a step in torch, which is the reference for the other executors.

model_runner.py      one step: a batch in, sampled tokens out; pooler.py: vectors of texts
executor.py          the interface of executors, and the choice among them
llama.py             the Llama family; model_config.py: the shape of a model
encoder.py           the BERT family; encoder_config.py: the shape of an encoder
attention.py         attention over pages; kv_pages.py: the pages; rope.py: rotary positions
embedding_config.py  how a model's vectors are made
"""
