"""Codecs of TensorFlow Serving's wires, and of KServe's v1.

predict.py               `Predict` over gRPC, and tensors in protobuf
datatypes.py             names of datatypes
predict_view.py          a `PredictRequest`, decoded as far as a gateway needs
examples.py              `Classify` and `Regress`
rest.py                  REST other than inference: signatures, versions
predict_v1.py            requests of the v1 REST protocols
predict_v1_view.py       a v1 request, decoded as far as a gateway needs
predict_v1_responses.py  responses of the v1 REST protocols
predict_v1_upstream.py   the v1 REST protocols as a client
"""
