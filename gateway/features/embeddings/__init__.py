"""OpenAI embeddings from tensor models.

embed.py    an `Upstream` that answers an embeddings request with inferences
texts.py    texts as rows of tokens
vectors.py  tokens as a model's input, and its output as vectors
loading.py  loads tokenizers before any request
"""
