"""The batch APIs of providers.

provider.py   the interface of a provider's batches
openai.py     OpenAI's files and batches
anthropic.py  Anthropic's message batches
exchanges.py  calls of both
making.py     the provider of a pool
"""
