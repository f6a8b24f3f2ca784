"""The Open Inference Protocol, over HTTP and gRPC.

requests.py            requests over HTTP: JSON and the binary extension
responses.py           responses over HTTP
payloads.py            the payloads of requests
request_view.py        a request over HTTP, decoded as far as a gateway needs
raw_requests.py        raw bodies: one input's data
json_data.py           tensor elements as JSON
bodies.py              bodies other than inference: metadata, repository, errors
generate.py            Triton's generate extension
parameters.py          parameters of the protocol and their types
metadata_check.py      checks tensors against a model's metadata
proto_requests.py      requests over gRPC
proto_responses.py     responses over gRPC, alone and in a stream
proto_request_view.py  a request over gRPC, decoded as far as a gateway needs
proto_contents.py      typed contents and parameters over gRPC
ovms.py                OpenVINO Model Server's status of all models
"""
