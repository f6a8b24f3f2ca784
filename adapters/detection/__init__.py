"""Identifies a server by paths that only its system has, lists its models, and writes its configuration.

detect.py      tries all families in order
look.py        one bounded request to a server
oip.py         detects servers of the Open Inference Protocol
text.py        detects servers of text models
predict_v1.py  detects TensorFlow Serving, and KServe's v1
apps.py        detects servers of apps and handlers
grpc.py        detects gRPC servers
result.py      the result, as plain data
written.py     renders the result as a configuration
auto.py        `protocol: auto`
"""
