"""Pictures in chats: from a file to rows that take the place of a prompt's embeddings.

tower.py     the encoder of pictures and its connector, in torch
prompts.py   the tokens that stand for a picture in a prompt
tiles.py     a file as tiles of pixels; runs in a worker process
settings.py  how a model cuts and normalises pictures, from its folder
"""
