"""Adapters of servers of the Open Inference Protocol, over HTTP and gRPC.

http_client.py  the adapter over HTTP
grpc_client.py  the adapter over gRPC, and its streams
dialects.py     differences of servers from Triton, one line each, and orders that differ
responses.py    responses over HTTP, whole or streamed
"""
