"""Adapters of TensorFlow Serving and of KServe's v1.

rest_client.py  TensorFlow Serving over REST
grpc_client.py  TensorFlow Serving over gRPC
kserve_v1.py    KServe's v1
models.py       cached signatures of models, and requests decoded with them
"""
