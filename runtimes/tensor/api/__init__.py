"""The Open Inference Protocol over HTTP and gRPC, and the server process.

server.py          the process: listen, load, serve, drain
http.py            the paths over HTTP: inference, streams of responses, and the rest
grpc.py            the methods of the gRPC service, with `ModelStreamInfer`
torchserve.py      TorchServe's paths: predictions, the health check, the list of models
invocations.py     the paths of MLflow, SageMaker and Vertex AI; dataframes.py: their tables
sagemaker.py       loads and unloads of SageMaker's multi-model endpoints
explaining.py      the paths of explanations, and of KServe's v1
service.py         inference, whichever wire a request came over
delivery.py        outputs into shared memory, or as classes; shared_memory.py: its regions
control.py         metadata, repository, statistics and settings, for both wires
refusals.py        errors as responses
restrictions.py    the paths, and parts of the interface that need a secret
metrics.py         the page of `/metrics`
trace.py           traces of requests, and the settings of these
log_settings.py    the format of the log, and which levels it has
"""
