"""Adapters of servers of the Open Inference Protocol, over HTTP and gRPC.

http_client.py     the adapter over HTTP
grpc_client.py     the adapter over gRPC
dialects.py        differences of servers from Triton, one line each
inference.py       completes requests whose bytes lack information: raw bodies, prompts, plain JSON values
responses.py       responses over HTTP
event_stream.py    streams of responses over HTTP
message_stream.py  streams of responses over gRPC
orders.py          loading and unloading over HTTP
refusals.py        typed errors and usage, for both wires
"""
