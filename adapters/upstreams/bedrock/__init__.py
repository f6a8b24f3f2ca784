"""Amazon Bedrock's runtime.

adapter.py     the adapter of an endpoint: chats by Converse, and counts of tokens
embedding.py   embeddings by InvokeModel
operations.py  requests to the operations of a model, and typed errors
streams.py     Converse's streams for clients of chats and of Messages
"""
