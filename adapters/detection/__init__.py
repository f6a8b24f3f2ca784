"""Identifies a server by the paths that only its kind has, lists its models, and writes its configuration.

detect.py      tries all families in order
look.py        one bounded request to a server
oip.py         servers of the Open Inference Protocol
text.py        servers of text
predict_v1.py  TensorFlow Serving, and KServe's v1
apps.py        servers of apps and handlers
grpc.py        servers that speak gRPC
found.py       the result, as plain data
written.py     the result as a configuration
auto.py        `protocol: auto`
"""
