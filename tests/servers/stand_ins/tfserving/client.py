"""`python -m tests.servers.stand_ins.tfserving.client ADDRESS KEY MODEL SERVER`: the published client, unchanged.

It sends the requests of its users, and prints the responses as JSON.
"""

import json
import sys
from typing import Any

import grpc
import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
    regression_pb2,
)

ADDRESS, KEY, MODEL, SERVER = sys.argv[1:]
OPTIONS: dict[str, Any] = {"timeout": 60, "metadata": [("authorization", f"Bearer {KEY}"), ("x-server", SERVER)]}


def main() -> None:
    with grpc.insecure_channel(ADDRESS) as channel:
        prediction = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        models = model_service_pb2_grpc.ModelServiceStub(channel)
        responses = {
            "predict": _predict(prediction), "label": _predict(prediction, label="stable"),
            "shout": _shout(prediction), "classify": _classify(prediction), "regress": _regress(prediction),
            "metadata": _metadata(prediction), "status": _status(models), "refused": _refused(prediction),
        }  # fmt: skip
    print(json.dumps(responses))


def _predict(stub: Any, label: str = "") -> Any:
    request = predict_pb2.PredictRequest()
    request.model_spec.name = MODEL
    if label:
        request.model_spec.version_label = label
    request.inputs["x"].CopyFrom(tf.make_tensor_proto(np.array([[1, 2], [3, 4]], dtype=np.float32)))
    response = stub.Predict(request, **OPTIONS)
    return {name: tf.make_ndarray(tensor).tolist() for name, tensor in response.outputs.items()}


def _shout(stub: Any) -> Any:
    request = predict_pb2.PredictRequest(output_filter=["loud"])
    request.model_spec.name, request.model_spec.signature_name = MODEL, "shout"
    request.inputs["text"].CopyFrom(tf.make_tensor_proto(["hi"]))
    request.inputs["times"].CopyFrom(tf.make_tensor_proto([3], dtype=tf.int64))
    return [text.decode() for text in stub.Predict(request, **OPTIONS).outputs["loud"].string_val]


def _examples(request: Any, signature: str) -> Any:
    request.model_spec.name, request.model_spec.signature_name = MODEL, signature
    example = request.input.example_list.examples.add()
    for name, value in (("a", 1.0), ("b", 2.0)):
        example.features.feature[name].float_list.value.append(value)
    return request


def _classify(stub: Any) -> Any:
    response = stub.Classify(_examples(classification_pb2.ClassificationRequest(), "classify"), **OPTIONS)
    return [[one.label for one in each.classes] for each in response.result.classifications]


def _regress(stub: Any) -> Any:
    response = stub.Regress(_examples(regression_pb2.RegressionRequest(), "regress"), **OPTIONS)
    return [one.value for one in response.result.regressions]


def _metadata(stub: Any) -> Any:
    request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
    request.model_spec.name = MODEL
    signatures = get_model_metadata_pb2.SignatureDefMap()
    stub.GetModelMetadata(request, **OPTIONS).metadata["signature_def"].Unpack(signatures)
    return sorted(name for name in signatures.signature_def if not name.startswith("__"))


def _status(stub: Any) -> Any:
    request = get_model_status_pb2.GetModelStatusRequest()
    request.model_spec.name = MODEL
    statuses = stub.GetModelStatus(request, **OPTIONS).model_version_status
    return sorted([one.version, get_model_status_pb2.ModelVersionStatus.State.Name(one.state)] for one in statuses)


def _refused(stub: Any) -> Any:
    request = predict_pb2.PredictRequest()
    request.model_spec.name = MODEL
    request.inputs["x"].CopyFrom(tf.make_tensor_proto([[1.0, 2.0]]))
    errors = []
    for metadata in ([], [("authorization", "Bearer wrong")]):
        try:
            stub.Predict(request, timeout=60, metadata=metadata)
        except grpc.RpcError as error:
            errors.append(error.code().name)
    return errors


main()
