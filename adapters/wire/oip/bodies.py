"""The Open Inference Protocol over HTTP beside inference: metadata, and Triton's repository extension.

Configuration and statistics are plain JSON objects with Triton's fields.
"""

import base64
import binascii
from typing import Annotated, Any, ClassVar, TypeVar

import msgspec

from adapters.errors import CallerError
from adapters.requests import TensorPayload
from adapters.types import TensorWire
from adapters.wire import decoding
from adapters.wire.oip import requests as oip

EXTENSIONS = (
    "classification",
    "sequence",
    "model_repository",
    "model_repository(unload_dependents)",
    "schedule_policy",
    "model_configuration",
    "system_shared_memory",
    "binary_tensor_data",
    "parameters",
    "statistics",
    "trace",
    "logging",
)
"""Triton's names of a server's extensions."""

T = TypeVar("T")


class TensorMetadata(msgspec.Struct, frozen=True):
    """An input or an output. `shape` has the batch dimension where there is one; -1 is any length."""

    name: str
    datatype: str
    shape: tuple[int, ...]


class ModelMetadata(msgspec.Struct, omit_defaults=True):
    """`GET /v2/models/{name}`."""

    name: str
    versions: list[str]
    platform: str
    inputs: list[TensorMetadata]
    outputs: list[TensorMetadata]
    signature_def: dict[str, Any] = {}
    """TensorFlow Serving's signatures. `inputs` and `outputs` are those of the default signature."""
    parameters: dict[str, str] = {}
    """The model's card. Of the protocol's extensions, MLServer has the field too; other clients ignore it."""


class ServerMetadata(msgspec.Struct):
    """`GET /v2`."""

    name: str
    version: str
    extensions: list[str]


class IndexEntry(msgspec.Struct, omit_defaults=True):
    """One version of a model in the repository. A model that was never loaded has no version and no state."""

    name: str
    version: str = ""
    state: str = ""
    reason: str = ""


class _Metadata(msgspec.Struct):
    """Metadata as servers send it: some leave fields out."""

    name: str
    versions: list[str] | None = None
    platform: str | None = None
    inputs: list[TensorMetadata] | None = None
    outputs: list[TensorMetadata] | None = None
    signature_def: dict[str, Any] | None = None


class _Index(msgspec.Struct):
    ready: bool = False


class _Load(msgspec.Struct):
    parameters: dict[str, str | int | bool] | None = None


class _Unload(msgspec.Struct):
    parameters: dict[str, str | int | bool] | None = None


class _Retention(msgspec.Struct):
    seconds: Annotated[float, msgspec.Meta(gt=0, le=3600)]


class Load(msgspec.Struct):
    """A load request's overrides: `config` is JSON, `files` are by path."""

    config: str | None
    files: dict[str, bytes]


_index_request = msgspec.json.Decoder(_Index)
_load = msgspec.json.Decoder(_Load)
_unload = msgspec.json.Decoder(_Unload)
_retention = msgspec.json.Decoder(_Retention)
_metadata = msgspec.json.Decoder(_Metadata)
_index = msgspec.json.Decoder(list[IndexEntry])
_object = msgspec.json.Decoder(dict[str, Any])

encode = oip.encode_json
"""Encode a body from the structures above or from plain objects."""


def decode_index_request(body: bytes) -> bool:
    """Whether only ready models are requested. Raises `CallerError`."""
    return bool(body.strip()) and _decoded(_index_request, body).ready


def decode_load(body: bytes) -> Load:
    """Raises `CallerError`."""
    parameters = (_decoded(_load, body).parameters if body.strip() else None) or {}
    load = Load(None, {})
    for name, value in parameters.items():
        if not isinstance(value, str):
            raise CallerError(f"The load parameter `{name}` must be a string.", param=name)
        if name == "config":
            load.config = value
        elif name.startswith("file:"):
            try:
                load.files[name.removeprefix("file:")] = base64.b64decode(value, validate=True)
            except (binascii.Error, ValueError):
                raise CallerError(f"The load parameter `{name}` is not base64.", param=name) from None
        else:
            raise CallerError(f"Unknown load parameter `{name}`. Known: config, file:PATH.", param=name)
    if load.files and load.config is None:
        raise CallerError("Files need a `config` beside them.", param="config")
    return load


def decode_unload(body: bytes) -> bool:
    """Whether models that only this one depends on are unloaded too. Raises `CallerError`."""
    parameters = (_decoded(_unload, body).parameters if body.strip() else None) or {}
    value = parameters.get("unload_dependents", False)
    if not isinstance(value, bool):
        raise CallerError("`unload_dependents` must be true or false.", param="unload_dependents")
    return value


def decode_retention(body: bytes) -> float:
    """The seconds for which a version stays loaded. Raises `CallerError`."""
    return _decoded(_retention, body).seconds


def decode_object(body: bytes) -> dict[str, Any]:
    """Decode a JSON object; an empty body is an empty object. Raises `CallerError`."""
    return _decoded(_object, body) if body.strip() else {}


def decode_metadata(body: bytes) -> ModelMetadata:
    """Decode an upstream's model metadata. Raises `BackendError`."""
    decoded = _answered(_metadata, body)
    return ModelMetadata(
        decoded.name,
        decoded.versions or [],
        decoded.platform or "",
        decoded.inputs or [],
        decoded.outputs or [],
        decoded.signature_def or {},
    )


def decode_index(body: bytes) -> list[IndexEntry]:
    """Decode an upstream's repository index. Raises `BackendError`."""
    return _answered(_index, body)


def decode_response_object(body: bytes) -> dict[str, Any]:
    """Decode any JSON object from an upstream. Raises `BackendError`."""
    return _answered(_object, body)


def _decoded(decoder: "msgspec.json.Decoder[T]", body: bytes) -> T:
    try:
        return decoder.decode(body)
    except decoding.MALFORMED_JSON as error:
        raise oip.not_json(error) from None


def _answered(decoder: "msgspec.json.Decoder[T]", body: bytes) -> T:
    return decoding.decode(decoder.decode, body)


# The payloads of the Open Inference Protocol's requests, over HTTP and gRPC.


class HttpPayload(TensorPayload, kw_only=True):
    """The HTTP body of an inference or of a prompt."""

    wire: ClassVar[TensorWire] = "oip-http"

    header_length: int | None = None
    """Bytes of JSON before the binary tensors; None for JSON only, 0 for no JSON."""
    encoding: str = ""
    """The compression of `body`: the client's Content-Encoding."""
    opened: bytes = b""
    """The decompressed `body`, if it is compressed."""
    accepts: str = ""
    """The client's Accept-Encoding."""

    @property
    def plain(self) -> bytes:
        return self.opened or self.body

    def undecoded(self) -> "HttpPayload":
        return HttpPayload(body=self.plain, header_length=self.header_length)


class GrpcPayload(TensorPayload):
    """A `ModelInferRequest`, with the client's names."""

    wire: ClassVar[TensorWire] = "oip-grpc"


def header_length(payload: TensorPayload) -> int | None:
    """Bytes of JSON before the binary tensors; None for a body of one part."""
    return payload.header_length if isinstance(payload, HttpPayload) else None
