"""The endpoint picker: Envoy-based gateways send each request here, and forward it to the endpoint of the answer.

The path of a request is that of the HTTP listener: Envoy's reports of the request go through an HTTP/1.1 connection
without a socket to the same fronts, with the same keys, limits, routes and records. Only the last step differs: the
adapter's request leaves through Envoy, to the endpoint that the pool has picked, and Envoy reports the response.

(Envoy's external processing; the endpoint picker protocol 1.0 of Kubernetes' Gateway API Inference Extension.)

processing.py     one call of Envoy: the order of its messages
client_half.py    the client's half: the request to the fronts, and their response to Envoy
upstream_half.py  the upstream's half: the picked endpoint as Envoy names it, the adapter's request, the response
listener.py       the gRPC server
"""
