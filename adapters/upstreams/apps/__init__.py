"""Adapters of apps: servers with paths and bodies of their own.

http_app.py        any HTTP app, and declared tensors as its JSON
calls.py           calls of HTTP apps and their responses
ray_serve.py       Ray Serve over HTTP
ray_serve_grpc.py  Ray Serve over gRPC
bentoml.py         BentoML's services
"""
