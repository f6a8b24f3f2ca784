"""TensorFlow Serving's door over gRPC, in front of servers of the Open Inference Protocol and of REST."""

import asyncio
import json
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from adapters.errors import CallerError, CapacityError, InferenceError, TransportError
from adapters.fake import Script
from adapters.tensors import Inferred, RequestedOutput, Tensor, join_bytes
from adapters.types import OIP_GRPC, PREDICT_V1, TFSERVING_GRPC, Usage
from adapters.wire.oip.proto_responses import encode_infer_response
from adapters.wire.protos.tfserving import MODEL, PREDICTION, serving, tensorflow
from adapters.wire.tfserving.predict import decode_tensor
from adapters.wire.tfserving.predict_v1 import PredictV1Payload
from tests.adapters.http1.raw import until
from tests.gateway.fronts.oip import TensorDoor, TensorFake, tensor_door

pytestmark = pytest.mark.realtime  # gRPC has threads

METHODS = {**PREDICTION, **MODEL}
SCORED: dict[str, Any] = {
    "name": "chat",
    "versions": ["1", "2", "stable"],
    "inputs": [{"name": "a", "datatype": "FP32", "shape": [-1, 1]}, {"name": "b", "datatype": "FP32", "shape": [-1]}],
    "outputs": [{"name": "p", "datatype": "FP32", "shape": [-1, 2]}],
}


def answering(*outputs: Tensor) -> Script:
    body = encode_infer_response(Inferred("chat", "2", "", {}, list(outputs)))
    return Script(chunks=(body,), form=OIP_GRPC, usage=Usage(rows=2))


SUM = answering(
    Tensor("SUM", "INT32", (1, 2), struct.pack("<2i", 4, 6)),
    Tensor("half", "FP32", (2,), struct.pack("<2f", 0.5, 1.5)),
    Tensor("text", "BYTES", (1,), join_bytes([b"\xff"])),
    Tensor("yes", "BOOL", (2,), b"\x01\x00"),
)


class Client:
    """One that holds the tenant's key."""

    def __init__(self, door: TensorDoor, channel: grpc.aio.Channel) -> None:
        self.door = door
        self.metadata: list[tuple[str, str]] = list(door.keyed.items())
        self._channel = channel

    async def send(self, name: str, message: Any, **options: Any) -> Any:
        method = METHODS[name]
        write = message if isinstance(message, bytes) else message.SerializeToString()
        call = self._channel.unary_unary(method.path, response_deserializer=method.response.FromString)
        return await call(write, metadata=self.metadata, timeout=30, **options)

    async def refused(self, name: str, message: Any) -> tuple[grpc.StatusCode, str]:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await self.send(name, message)
        return refused.value.code(), refused.value.details() or ""


@asynccontextmanager
async def client(*fakes: TensorFake, **changes: Any) -> AsyncIterator[Client]:
    async with tensor_door(*fakes, **changes) as door, grpc.aio.insecure_channel(door.grpc) as channel:
        yield Client(door, channel)


def predict(model: str = "chat", **fields: Any) -> Any:
    message = serving.PredictRequest(**fields)
    message.model_spec.name = model
    for name, values in (("A", [1, 2]), ("B", [3, 4])):
        tensor = message.inputs[name]
        tensor.dtype = 3
        tensor.tensor_shape.dim.add(size=1)
        tensor.tensor_shape.dim.add(size=2)
        tensor.int_val.extend(values)
    return message


def examples(kind: Any, *rows: dict[str, Any], context: dict[str, float] | None = None) -> Any:
    message = kind()
    message.model_spec.name = "chat"
    response = message.input.example_list if context is None else message.input.example_list_with_context
    for name, value in (context or {}).items():
        response.context.features.feature[name].float_list.value.append(value)
    for row in rows:
        example = response.examples.add()
        for name, value in row.items():
            example.features.feature[name].float_list.value.append(value)
    return message


def scored(*scripts: Script) -> TensorFake:
    fake = TensorFake(*scripts)
    fake.about["metadata"] = SCORED
    return fake


async def test_predict() -> None:
    async with client(TensorFake(SUM)) as c:
        message = predict(output_filter=["SUM", "half"])
        message.model_spec.signature_name = "serving_default"
        message.model_spec.version.value = 2
        response = await c.send("Predict", message)
        assert list(response.outputs["SUM"].int_val) == [4, 6]
        assert [dim.size for dim in response.outputs["SUM"].tensor_shape.dim] == [1, 2]
        assert list(response.outputs["half"].float_val) == [0.5, 1.5]
        assert list(response.outputs["text"].string_val) == [b"\xff"]
        assert list(response.outputs["yes"].bool_val) == [True, False]
        assert (response.model_spec.name, response.model_spec.version.value) == ("chat", 2)
        assert response.model_spec.signature_name == "serving_default"
        (request,) = c.door.fake.received
        inference = request.inference
        assert [bytes(one.data) for one in inference.inputs] == [struct.pack("<2i", 1, 2), struct.pack("<2i", 3, 4)]
        assert inference.outputs == [RequestedOutput("SUM"), RequestedOutput("half")]
        assert inference.parameters == {}
        assert (request.version, request.rows) == ("2", 1)
        assert request.timeout is not None
        assert 0 < request.timeout <= 30.3  # gRPC's core rounds a timeout up, by at most a hundredth
    (record,) = c.door.rig.log.records
    assert (record.operation, record.usage, record.status) == ("infer", Usage(rows=2), 200)


async def test_a_signature_that_the_model_does_not_have_is_refused() -> None:
    async with client(TensorFake(SUM)) as c:
        message = predict()
        message.model_spec.signature_name = "other"
        refusal = (grpc.StatusCode.INVALID_ARGUMENT, 'Serving signature key "other" not found.')
        assert await c.refused("Predict", message) == refusal
        assert not c.door.fake.received


async def test_version_0_is_the_latest() -> None:
    """A request in the form of ovmsclient."""
    async with client(TensorFake(SUM)) as c:
        message = predict()
        message.model_spec.version.value = 0
        await c.send("Predict", message)
        assert c.door.fake.received[0].version == ""


async def test_a_label_and_whole_content() -> None:
    async with client(TensorFake(SUM)) as c:
        message = predict()
        message.model_spec.version_label = "stable"
        for tensor in message.inputs.values():
            tensor.tensor_content = struct.pack("<2i", *tensor.int_val)
            del tensor.int_val[:]
        await c.send("Predict", message)
        (request,) = c.door.fake.received
        assert request.version == "stable"
        assert bytes(request.inference.inputs[0].data) == struct.pack("<2i", 1, 2)


async def test_messages_pass_unchanged_between_equal_wires() -> None:
    response = serving.PredictResponse()
    response.model_spec.name = "theirs"
    response.model_spec.version.value = 7
    response.outputs["y"].dtype = 8  # which no other protocol has
    fake = TensorFake(Script(chunks=(response.SerializeToString(),), form=TFSERVING_GRPC, usage=Usage(rows=1)))
    fake.plain = True
    async with client(fake) as c:
        message = predict()
        message.inputs["A"].dtype = 8
        message.model_spec.version_label = "stable"
        answer = await c.send("Predict", message)
        response.model_spec.name = "chat"
        assert answer == response
        (request,) = fake.received
        assert request.payload.body == message.SerializeToString()
        assert (request.wire, request.version, request.rows, request.size) == (
            "tfserving-grpc", "stable", 1, len(request.payload.body),
        )  # fmt: skip
        assert not fake.queries


async def test_a_version_of_the_file_is_none_of_the_server() -> None:
    model = {"name": "chat", "versions": ["new"], "routes": [{"to": "main"}]}
    fake = TensorFake(SUM)
    async with client(fake, models=[model]) as c:
        message = predict()
        message.model_spec.version_label = "new"
        await c.send("Predict", message)
        assert fake.received[0].version == ""
        assert not serving.PredictRequest.FromString(fake.received[0].payload.body).model_spec.version_label


async def test_a_route_that_writes_parameters() -> None:
    rewrite = {"force": {"signature_name": "other", "k": 2}}
    model = {"name": "chat", "routes": [{"to": "main", "rewrite": rewrite}]}
    async with client(TensorFake(SUM), models=[model]) as c:
        response = await c.send("Predict", predict())
        assert list(response.outputs["SUM"].int_val) == [4, 6]
        (request,) = c.door.fake.received
        assert (request.wire, request.rows) == ("oip-http", 1)
        assert request.inference.parameters == {"signature_name": "other", "k": 2}


async def test_classify_and_regress_over_tensors() -> None:
    classes = answering(Tensor("p", "BYTES", (1, 2), join_bytes([b"0.75:1:dog", b"0.25:0:cat"])))
    values = answering(Tensor("v", "FP32", (2, 1), struct.pack("<2f", 0.5, 1.5)))
    async with client(scored(classes, values)) as c:
        response = await c.send("Classify", examples(serving.ClassificationRequest, {"a": 1.0, "b": 2.0}))
        (row,) = response.result.classifications
        assert [(one.label, one.score) for one in row.classes] == [("cat", 0.25), ("dog", 0.75)]
        assert response.model_spec.name == "chat"
        first = c.door.fake.received[0].inference
        assert first.outputs == [RequestedOutput("p", {"classification": 2})]
        assert [(one.name, one.shape, bytes(one.data)) for one in first.inputs] == [
            ("a", (1, 1), struct.pack("<f", 1)), ("b", (1,), struct.pack("<f", 2)),
        ]  # fmt: skip
        rows = examples(serving.RegressionRequest, {"a": 1.0}, {"a": 2.0, "b": 7.0}, context={"b": 3.0})
        response = await c.send("Regress", rows)
        assert [one.value for one in response.result.regressions] == [0.5, 1.5]
        inputs = {one.name: bytes(one.data) for one in c.door.fake.received[1].inference.inputs}
        assert inputs == {"a": struct.pack("<2f", 1, 2), "b": struct.pack("<2f", 3, 7)}


async def test_examples_go_to_rest_as_it_has_them() -> None:
    fake = TensorFake(
        Script(chunks=(b'{"results": [[["cat", 0.5], ["dog", null]]]}',), form=PREDICT_V1),
        Script(chunks=(b'{"result": [1.5]}',), form=PREDICT_V1),
        Script(chunks=(b'{"predictions": []}',), form=PREDICT_V1),
        Script(chunks=(b'{"results": [["cat"]]}',), form=PREDICT_V1),
    )
    fake.plain = True
    async with client(fake) as c:
        message = examples(serving.ClassificationRequest, {"a": 1.0})
        message.model_spec.signature_name = "classify"
        feature = message.input.example_list.examples[0].features.feature
        feature["t"].bytes_list.value.extend([b"\xff", b"x"])
        feature["n"].int64_list.value.append(7)
        response = await c.send("Classify", message)
        cat, dog = response.result.classifications[0].classes
        assert (cat.label, cat.score, dog.label) == ("cat", 0.5, "dog")
        assert dog.score != dog.score
        sent = json.loads(fake.received[0].payload.body)
        example = {"a": 1.0, "n": 7, "t": [{"b64": "/w=="}, {"b64": "eA=="}]}
        assert sent == {"signature_name": "classify", "examples": [example]}
        assert isinstance(fake.received[0].payload, PredictV1Payload)
        assert (fake.received[0].payload.verb, fake.received[0].rows) == ("classify", 1)
        response = await c.send("Regress", examples(serving.RegressionRequest, {"a": 1.0}))
        assert [one.value for one in response.result.regressions] == [1.5]
        for _ in range(2):
            code, _ = await c.refused("Classify", message)
            assert code == grpc.StatusCode.INTERNAL


async def test_metadata_and_status() -> None:
    async with client(scored()) as c:
        message = serving.GetModelMetadataRequest(metadata_field=["signature_def"])
        message.model_spec.name = "chat"
        response = await c.send("GetModelMetadata", message)
        assert (response.model_spec.name, response.model_spec.version.value) == ("chat", 2)
        packed = response.metadata["signature_def"]
        assert packed.type_url == "type.googleapis.com/tensorflow.serving.SignatureDefMap"
        signature = serving.SignatureDefMap.FromString(packed.value).signature_def["serving_default"]
        assert (signature.inputs["a"].dtype, signature.method_name) == (1, "tensorflow/serving/predict")
        assert [dim.size for dim in signature.inputs["a"].tensor_shape.dim] == [-1, 1]
        status = serving.GetModelStatusRequest()
        status.model_spec.name = "chat"
        response = await c.send("GetModelStatus", status)
        assert [(one.version, one.state) for one in response.model_version_status] == [(1, 30), (2, 30)]
        status.model_spec.version.value = 2
        response = await c.send("GetModelStatus", status)
        assert [(one.version, one.state, one.status.error_code) for one in response.model_version_status] == [
            (2, 30, 0)
        ]
        del message.metadata_field[:]
        code, reason = await c.refused("GetModelMetadata", message)
        assert (code, "signature_def" in reason) == (grpc.StatusCode.INVALID_ARGUMENT, True)


async def test_a_model_that_is_not_there_and_one_without_versions() -> None:
    fake = scored()
    fake.about["metadata"] = {**SCORED, "versions": []}
    async with client(fake) as c:
        message = serving.GetModelStatusRequest()
        message.model_spec.name = "chat"
        response = await c.send("GetModelStatus", message)
        assert [(one.version, one.state) for one in response.model_version_status] == [(0, 30)]
        fake.failing = CapacityError("not ready")
        response = await c.send("GetModelStatus", message)
        assert [(one.state, one.status.error_code) for one in response.model_version_status] == [(20, 14)]


def _odd(change: Any) -> Any:
    message = predict()
    change(message.inputs["A"])
    return message


BAD = grpc.StatusCode.INVALID_ARGUMENT
WRONG: list[tuple[str, Any, grpc.StatusCode, str]] = [
    ("Predict", b"\xff\xff", BAD, "not a PredictRequest"),
    ("Predict", predict("nobody"), grpc.StatusCode.NOT_FOUND, "nobody"),
    ("Predict", _odd(lambda one: setattr(one, "dtype", 20)), BAD, "DT_RESOURCE"),
    ("Predict", _odd(lambda one: setattr(one, "dtype", 77)), BAD, "77"),
    ("Predict", _odd(lambda one: one.int_val.extend([1])), BAD, "3 values"),
    ("Predict", _odd(lambda one: setattr(one.tensor_shape, "unknown_rank", True)), BAD, "shape"),
    ("Predict", _odd(lambda one: setattr(one.tensor_shape.dim[0], "size", -1)), BAD, "shape"),
    ("Predict", _odd(lambda one: setattr(one.tensor_shape.dim[0], "size", 2**40)), BAD, "send all"),
    ("Predict", _odd(lambda one: setattr(one, "tensor_content", b"123")), BAD, "3 bytes"),
    ("Predict", _odd(lambda one: setattr(one, "dtype", 4)), BAD, ""),
    ("Classify", serving.ClassificationRequest(), BAD, "no examples"),
    ("Regress", examples(serving.RegressionRequest, {"other": 1.0}), BAD, "other"),
    ("MultiInference", serving.MultiInferenceRequest(), grpc.StatusCode.UNIMPLEMENTED, "Classify"),
    ("HandleReloadConfigRequest", serving.ReloadConfigRequest(), grpc.StatusCode.PERMISSION_DENIED, "configuration"),
]


@pytest.mark.parametrize(("name", "message", "code", "reason"), WRONG, ids=range(len(WRONG)))
async def test_an_invalid_request_is_refused_with_a_reason(
    name: str, message: Any, code: grpc.StatusCode, reason: str
) -> None:
    if name == "Predict" and isinstance(message, serving.PredictRequest) and message.inputs["A"].dtype == 4:
        message.inputs["A"].int_val[0] = -1
    async with client(scored(SUM)) as c:
        actual, words = await c.refused(name, message)
        assert actual == code
        assert reason in words
        c.metadata = []
        assert (await c.refused(name, message))[0] == grpc.StatusCode.UNAUTHENTICATED


FAILURES: list[tuple[InferenceError, grpc.StatusCode]] = [
    (CallerError("no"), BAD),
    (CapacityError("full"), grpc.StatusCode.UNAVAILABLE),
    (TransportError("gone"), grpc.StatusCode.UNAVAILABLE),
]


@pytest.mark.parametrize(("failure", "code"), FAILURES)
async def test_a_failure_is_a_status(failure: InferenceError, code: grpc.StatusCode) -> None:
    async with client(TensorFake(Script(fault=failure))) as c:
        assert (await c.refused("Predict", predict()))[0] == code


async def test_limits_count_rows() -> None:
    async with client(TensorFake(SUM), limits={"rows": "2/h"}) as c:
        await c.send("Predict", predict())
        code, _ = await c.refused("Predict", predict())
        assert code == grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_a_client_that_leaves_stops_the_work() -> None:
    async with client(TensorFake(Script(latency=60.0))) as c:
        pending = asyncio.create_task(c.send("Predict", predict()))
        await until(lambda: bool(c.door.fake.calls))
        pending.cancel()
        await asyncio.gather(pending, return_exceptions=True)
        await until(lambda: not c.door.fake.in_flight)
        await c.door.rig.until_idle()


def test_few_bytes_do_not_become_many() -> None:
    small = tensorflow.TensorProto(dtype=1, float_val=[2.0])
    small.tensor_shape.dim.add(size=3)
    assert bytes(decode_tensor("x", small).data) == struct.pack("<3f", 2, 2, 2)
    small.tensor_shape.dim[0].size = 1_000_000
    with pytest.raises(CallerError, match="send all"):
        decode_tensor("x", small)
