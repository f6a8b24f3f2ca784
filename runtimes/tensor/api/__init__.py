"""The Open Inference Protocol over HTTP and gRPC, and the server process.

server.py          the process: listen, load, serve, drain
http.py            inference over HTTP; http_control.py: the rest; routes.py: the paths; events.py: streams of responses
grpc.py            the methods of the gRPC service; grpc_stream.py: `ModelStreamInfer`
control.py         metadata, repository, statistics and settings, for both wires
refusals.py        errors as responses
restrictions.py    parts of the interface that need a secret
metrics.py         the page of `/metrics`
trace.py           traces of requests; trace_settings.py: which requests are traced
log_settings.py    the format of the log, and which levels it has
"""
