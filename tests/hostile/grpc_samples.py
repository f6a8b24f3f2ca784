"""All protocols over gRPC. A new one adds its samples here: a few lines."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from adapters.requests import AppRequest, ModelRequest
from adapters.wire.protos import METHODS
from adapters.wire.protos.tfserving import serving
from tests.hostile.tensor_samples import DECLARED, ROWS, app, infer


@dataclass(frozen=True)
class GrpcSample:
    """One kind of request to one protocol."""

    kind: str
    request: Callable[[], ModelRequest]
    messages: tuple[bytes, ...]
    """The right answer."""
    options: Mapping[str, Any] = field(default_factory=dict)
    good: Mapping[str, bytes] = field(default_factory=dict)
    """Responses to other requests, by path; they are never attacked."""
    wrong: Mapping[str, bytes] = field(default_factory=dict)
    """Messages that are well made, healthy and wrong."""
    streams: bool = False
    opaque: bool = False
    """Any bytes are right: they are an app's own business."""


# ── the Open Inference Protocol ───────────────────────────────────────────────────────────────────────

_infer, _stream = METHODS["ModelInfer"].response, METHODS["ModelStreamInfer"].response


def answered(**changes: Any) -> Any:
    output = {"name": "y", "datatype": "FP32", "shape": [1, 4], **changes}
    return _infer(model_name="m", outputs=[output], raw_output_contents=[b"\0" * 16])


ANSWERED = answered().SerializeToString()
PIECE = _stream(infer_response=answered()).SerializeToString()
OF_TENSORS = {
    "no data": _infer(model_name="m", outputs=[{"name": "y", "datatype": "FP32", "shape": [1, 4]}]),
    "too little data": answered(shape=[8, 4]),
    "a shape below nothing": answered(shape=[-1, 4]),
}
OIP_GRPC = [
    GrpcSample("infer", infer, (ANSWERED,), wrong={name: one.SerializeToString() for name, one in OF_TENSORS.items()}),
    GrpcSample(
        "infer stream",
        lambda: infer(stream=True),
        (PIECE, PIECE),
        wrong={"an error inside": _stream(error_message="no").SerializeToString()},
        streams=True,
    ),
]

# ── TensorFlow Serving ────────────────────────────────────────────────────────────────────────────────


def _described() -> bytes:
    signatures = serving.SignatureDefMap()
    one = signatures.signature_def["serving_default"]
    for tensors, name in ((one.inputs, "x"), (one.outputs, "y")):
        tensors[name].dtype = 1
        for size in (-1, 4):
            tensors[name].tensor_shape.dim.add(size=size)
    reply = serving.GetModelMetadataResponse()
    reply.metadata["signature_def"].value = signatures.SerializeToString()
    return bytes(reply.SerializeToString())


def _predicted(size: int = 4, dtype: int = 1) -> bytes:
    reply = serving.PredictResponse()
    reply.outputs["y"].dtype = dtype
    reply.outputs["y"].tensor_content = b"\0" * 16
    for dim in (1, size):
        reply.outputs["y"].tensor_shape.dim.add(size=dim)
    return bytes(reply.SerializeToString())


TFSERVING_GRPC = [
    GrpcSample(
        "infer",
        infer,
        (_predicted(),),
        good={"/tensorflow.serving.PredictionService/GetModelMetadata": _described()},
        wrong={
            "too little data": _predicted(size=9),
            "a shape below nothing": _predicted(size=-1),
            "a datatype that nobody knows": _predicted(dtype=99),
        },
    ),
]

# ── apps ──────────────────────────────────────────────────────────────────────────────────────────────


def bytes_field(data: bytes) -> bytes:
    """A message whose first field they are."""
    return b"\x0a" + bytes([len(data)]) + data


def call(**fields: Any) -> ModelRequest:
    return AppRequest(model="m", path="/my.Service/Do", body=b"abc", **fields)


TORCHSERVE_GRPC = [
    GrpcSample("app", lambda: app(""), (bytes_field(b"whatever it likes to say"),)),
    GrpcSample("infer", infer, (bytes_field(ROWS),), options=DECLARED, wrong={"no such output": bytes_field(b"{}")}),
    GrpcSample(
        "app stream",
        lambda: app(""),
        (bytes_field(b"whatever it "), bytes_field(b"likes to say")),
        options={"streaming": True},
        streams=True,
    ),
]
RAY_SERVE_GRPC = [
    GrpcSample("app", call, (b"whatever it likes to say",), opaque=True),
    GrpcSample("app stream", lambda: call(stream=True), (b"whatever it ", b"likes"), streams=True, opaque=True),
]

GRPC_SAMPLES: dict[str, list[GrpcSample]] = {
    "oip-grpc": OIP_GRPC,
    "tfserving-grpc": TFSERVING_GRPC,
    "torchserve-grpc": TORCHSERVE_GRPC,
    "ray-serve-grpc": RAY_SERVE_GRPC,
}
