"""Requests of lines that wait for a batch of the provider, and the batch APIs of providers.

deferral.py   a pass of a line: its request is deferred, or receives the provider's result
client.py     the HTTP client of a pool whose lines are deferred
provider.py   the interface of a provider's batches
openai.py     OpenAI's files and batches
anthropic.py  Anthropic's message batches
exchanges.py  calls of both
making.py     the provider of a pool
"""
