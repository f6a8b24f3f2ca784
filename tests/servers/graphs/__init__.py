"""KServe's router of an InferenceGraph, and our gateway with the graph imported: the same requests to both.

models.py   a server of KServe's v1 that both call, and its calls so far
cases.py    graphs and requests: written ones, and random ones from a seed
router.py   the answers of the router's binary; `python -m tests.servers.graphs.router BINARY` records them
"""
