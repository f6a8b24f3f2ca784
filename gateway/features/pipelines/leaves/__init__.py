"""The kinds of nodes that contain no other nodes and call models only as a part of their work.

build.py     compiles the nodes
template.py  a text, or the messages of a chat, from values
rerank.py    the best candidates, by embeddings or scores; ranking.py orders them
decode.py    pictures and sound as tensors
tokens.py    texts as tokens, and tokens as texts; served_tokens.py: by a model's servers; token_rows.py: rows of tokens
call.py      sends values to Python code in a process of the tensor runtime; functions.py: the models of Python files
resources.py prepares what the nodes of a configuration need, before it is in force
"""
