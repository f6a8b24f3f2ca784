"""The Open Inference Protocol, over HTTP and gRPC.

requests.py         requests over HTTP: JSON, the binary extension, raw data
responses.py        responses over HTTP
request_view.py     a request over HTTP, decoded as far as a gateway needs
json_data.py        tensor elements as JSON
bodies.py           bodies other than inference (metadata, repository, errors), and the payloads of requests
generate.py         Triton's generate extension
card.py             the parameters of a model's metadata over gRPC
parameters.py       parameters of the protocol and their types
proto_requests.py   requests over gRPC, and the gateway's view of them
proto_responses.py  responses over gRPC, alone and in a stream
proto_contents.py   typed contents and parameters over gRPC
"""
