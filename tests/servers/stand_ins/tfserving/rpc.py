"""The two services over gRPC, by their published servicers."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import tensorflow as tf
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    inference_pb2,
    model_management_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
    regression_pb2,
)

from tests.servers.stand_ins.tfserving.models import (
    CLASSIFY,
    INVALID_ARGUMENT,
    REGRESS,
    SERVING,
    Failure,
    Models,
)

_STATUS = {code.value[0]: code for code in grpc.StatusCode}


def predict(models: Models, request: Any) -> Any:
    """`Predict`, for both doors."""
    number, version = models.resolve(request.model_spec)
    signature = version.signature(request.model_spec.signature_name)
    try:
        inputs = {name: tf.make_ndarray(tensor) for name, tensor in request.inputs.items()}
    except (TypeError, ValueError) as error:
        raise Failure(INVALID_ARGUMENT, f"tensor parsing error: {error}") from None
    response = predict_pb2.PredictResponse()
    _put_spec(response, request, number)
    for name, array in version.run(signature, inputs, list(request.output_filter)).items():
        response.outputs[name].CopyFrom(_by_value(array))
    return response


def classify(models: Models, request: Any) -> Any:
    number, version = models.resolve(request.model_spec)
    outputs = version.of_examples(
        version.signature(request.model_spec.signature_name), CLASSIFY, _examples(request.input)
    )
    response = classification_pb2.ClassificationResponse()
    _put_spec(response, request, number)
    for labels, scores in zip(outputs["classes"], outputs["scores"], strict=True):
        each = response.result.classifications.add()
        for label, score in zip(labels, scores, strict=True):
            each.classes.add(label=label.decode(), score=float(score))
    return response


def regress(models: Models, request: Any) -> Any:
    number, version = models.resolve(request.model_spec)
    outputs = version.of_examples(
        version.signature(request.model_spec.signature_name), REGRESS, _examples(request.input)
    )
    response = regression_pb2.RegressionResponse()
    _put_spec(response, request, number)
    for value in outputs["outputs"].reshape(-1):
        response.result.regressions.add(value=float(value))
    return response


def several(models: Models, request: Any) -> Any:
    response = inference_pb2.MultiInferenceResponse()
    for task in request.tasks:
        fields = {"model_spec": task.model_spec, "input": request.input}
        result = response.results.add(model_spec=task.model_spec)
        if task.method_name == CLASSIFY:
            answer = classify(models, classification_pb2.ClassificationRequest(**fields))
            result.classification_result.CopyFrom(answer.result)
        elif task.method_name == REGRESS:
            result.regression_result.CopyFrom(regress(models, regression_pb2.RegressionRequest(**fields)).result)
        else:
            raise Failure(12, f"Unsupported signature method_name: {task.method_name}")
    return response


def metadata(models: Models, request: Any) -> Any:
    if list(request.metadata_field) != ["signature_def"]:
        raise Failure(INVALID_ARGUMENT, "Metadata field should be specified, and only signature_def is supported")
    number, version = models.resolve(request.model_spec)
    response = get_model_metadata_pb2.GetModelMetadataResponse()
    response.model_spec.name = request.model_spec.name
    response.model_spec.version.value = number
    signatures = get_model_metadata_pb2.SignatureDefMap()
    for name, signature in version.signatures.items():
        signatures.signature_def[name].CopyFrom(signature)
    response.metadata["signature_def"].Pack(signatures)
    return response


def status(models: Models, request: Any) -> Any:
    response = get_model_status_pb2.GetModelStatusResponse()
    for number, state in models.states(request.model_spec):
        response.model_version_status.add(version=number, state=state).status.error_code = 0
    return response


def reload(models: Models, request: Any) -> Any:
    """The response of a refused configuration has the status OK and contains the error."""
    response = model_management_pb2.ReloadConfigResponse()
    try:
        if request.config.WhichOneof("config") != "model_config_list":
            raise Failure(INVALID_ARGUMENT, "ModelServerConfig type not supported by HandleReloadConfigRequest")
        models.configure(request.config)
    except Failure as failure:
        response.status.error_code, response.status.error_message = failure.code, failure.message
    return response


def _put_spec(response: Any, request: Any, number: int) -> None:
    response.model_spec.name = request.model_spec.name
    response.model_spec.version.value = number
    response.model_spec.signature_name = request.model_spec.signature_name or SERVING


def _examples(given: Any) -> list[bytes]:
    """Each with the context's features, where it has no own."""
    kind = given.WhichOneof("kind")
    if kind is None:
        raise Failure(INVALID_ARGUMENT, "Input is empty.")
    if kind == "example_list":
        return [example.SerializeToString() for example in given.example_list.examples]
    merged = []
    for example in given.example_list_with_context.examples:
        whole = tf.train.Example()
        whole.CopyFrom(given.example_list_with_context.context)
        for name, feature in example.features.feature.items():
            whole.features.feature[name].CopyFrom(feature)
        merged.append(whole.SerializeToString())
    return merged


def _by_value(array: Any) -> Any:
    """The server's default is a field for each kind, and not `tensor_content`."""
    whole = tf.make_tensor_proto(array)
    if not whole.tensor_content:
        return whole
    tensor = type(whole)(dtype=whole.dtype, tensor_shape=whole.tensor_shape)
    flat = array.reshape(-1)
    name = array.dtype.name
    if name in ("float16", "bfloat16"):
        tensor.half_val.extend(flat.view("<u2").tolist())
        return tensor
    field = {"float32": "float_val", "float64": "double_val", "int64": "int64_val", "bool": "bool_val"}.get(name)
    if name in ("uint32", "uint64"):
        field = f"{name}_val"
    getattr(tensor, field or "int_val").extend(flat.tolist())
    return tensor


def serve(models: Models, port: int = 0, threads: int = 8) -> tuple[Any, int]:
    """A started server and its port."""

    def answering(answer: Callable[[Models, Any], Any]) -> Callable[[Any, Any, Any], Any]:
        def call(_: Any, request: Any, context: Any) -> Any:
            try:
                return answer(models, request)
            except Failure as failure:
                context.abort(_STATUS[failure.code], failure.message)

        return call

    prediction = {
        "Predict": predict, "Classify": classify, "Regress": regress, "MultiInference": several,
        "GetModelMetadata": metadata,
    }  # fmt: skip
    management = {"GetModelStatus": status, "HandleReloadConfigRequest": reload}
    bases = (prediction_service_pb2_grpc.PredictionServiceServicer, model_service_pb2_grpc.ModelServiceServicer)
    first, second = (
        type("Service", (base,), {name: answering(answer) for name, answer in methods.items()})()
        for base, methods in zip(bases, (prediction, management), strict=True)
    )
    options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    server = grpc.server(ThreadPoolExecutor(threads), options=options)
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(first, server)
    model_service_pb2_grpc.add_ModelServiceServicer_to_server(second, server)
    port = server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    return server, port
