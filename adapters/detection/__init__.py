"""Identifies a server by paths that only its system has, lists its models, and writes its configuration.

detect.py      tries all families in order, and renders the result as a configuration
look.py        one bounded request to a server, and the result of a detection
oip.py         detects servers of the Open Inference Protocol
text.py        detects servers of text models
apps.py        detects servers of apps, handlers and the v1 REST protocols
grpc.py        detects gRPC servers
auto.py        `protocol: auto`
"""
