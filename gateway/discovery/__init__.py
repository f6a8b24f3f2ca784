"""Endpoints that are found while the gateway runs: DNS, a file, Kubernetes."""
