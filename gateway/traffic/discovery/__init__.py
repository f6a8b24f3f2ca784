"""Sources of endpoints while the gateway runs.

discoverer.py      follows one pool's source, and holds its last result
dns.py             addresses and SRV records
endpoint_file.py   a file with a list of endpoints
kubernetes.py      the EndpointSlices of a Kubernetes service
slices.py          EndpointSlices as targets, without I/O
inference_pool.py  the pods of an InferencePool
pool_pods.py       an InferencePool and its pods as targets, without I/O
cluster_api.py     requests to a Kubernetes API server
list_watch.py      lists and watches one of its resources
target.py          one discovered endpoint
"""
