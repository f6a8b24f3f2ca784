"""Adapter of servers of OpenAI's API.

client.py            the adapter
paths.py             the paths of each operation and dialect
chunk_stream.py      a stream of OpenAI's chunks
responses_stream.py  a stream of a server that supports Responses, forwarded unchanged
token_count.py       counts the tokens of a prompt with the server's `/tokenize`
orders.py            loading, unloading, sleep and LoRA adapters
refusals.py          typed errors for refusals
"""
