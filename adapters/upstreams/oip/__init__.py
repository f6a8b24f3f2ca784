"""Servers that speak the Open Inference Protocol, over HTTP and gRPC."""
