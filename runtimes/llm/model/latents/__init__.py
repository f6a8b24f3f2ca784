"""Attention to latents, as DeepSeek has it.

latent.py    latent attention
sparse.py    attention to the positions that an indexer selects
families.py  the families of such decoders, one row for each
"""
