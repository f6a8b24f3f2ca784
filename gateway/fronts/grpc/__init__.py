"""The fronts of the gRPC listener.

listener.py    the gRPC server with all fronts
rpcs.py        selects the front of a call; the base of all gRPC fronts: credentials, ids, errors
oip.py         the Open Inference Protocol: unary calls
oip_stream.py  `ModelStreamInfer`: many requests over one call
tfserving.py   TensorFlow Serving's `PredictionService` and `ModelService`
apps.py        TorchServe's service, and any service of an app that the call's metadata names
"""
