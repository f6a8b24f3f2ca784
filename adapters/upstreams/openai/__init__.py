"""Adapter of servers of OpenAI's API.

client.py        the adapter
paths.py         the paths of each operation and dialect
chunk_stream.py  a stream of OpenAI's chunks, and of events of Responses
token_count.py   counts the tokens of a prompt with the server's `/tokenize`
orders.py        loading, unloading, sleep and LoRA adapters
"""
