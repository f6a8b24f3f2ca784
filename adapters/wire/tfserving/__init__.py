"""Codecs of TensorFlow Serving's wires, and of KServe's v1.

predict.py               `Predict` over gRPC
payloads.py              the payloads of requests
predict_view.py          a `PredictRequest`, decoded as far as a gateway needs
examples.py              `Classify` and `Regress`
tensors.py               TensorFlow's tensors in protobuf
rest.py                  REST other than inference: signatures, versions
predict_v1.py            requests of the v1 REST protocols
predict_v1_view.py       a v1 request, decoded as far as a gateway needs
predict_v1_responses.py  responses of the v1 REST protocols
predict_v1_upstream.py   the v1 REST protocols as a client
"""
