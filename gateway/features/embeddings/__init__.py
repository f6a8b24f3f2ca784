"""OpenAI embeddings from tensor models.

embed.py    an `Upstream` that answers an embeddings request with inferences: their inputs, and vectors from outputs
texts.py    texts as rows of tokens
loading.py  loads tokenizers before any request
"""
