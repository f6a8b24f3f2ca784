"""Codecs of TorchServe's wires.

management.py  errors and the management API, as JSON
proto.py       gRPC messages
"""
