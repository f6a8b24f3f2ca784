"""Sources of endpoints while the gateway runs.

discoverer.py     follows one pool's source, and holds its last result
dns.py            addresses and SRV records
endpoint_file.py  a file with a list of endpoints
kubernetes.py     lists and watches the EndpointSlices of a service
slices.py         EndpointSlices as targets, without I/O
target.py         one discovered endpoint
"""
