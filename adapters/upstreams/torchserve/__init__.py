"""Adapters of TorchServe, over HTTP and gRPC.

http_client.py  the adapter over HTTP
grpc_client.py  the adapter over gRPC
models.py       the management API (versions, workers, orders), and the errors of failures
"""
