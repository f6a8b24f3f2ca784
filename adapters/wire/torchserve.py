"""Codec of TorchServe's wires: errors and the management API as JSON, and gRPC messages."""

from typing import NamedTuple

import msgspec

from adapters.errors import CallerError
from adapters.wire import decoding, proto_fields

MAX_MESSAGE = 2_000
_encode = msgspec.json.Encoder().encode


class ErrorBody(msgspec.Struct):
    """The body of an error. `type` is the name of a Java class."""

    code: int = 0
    type: str = ""
    message: str = ""


class _Worker(msgspec.Struct):
    status: str = ""


class _Queue(msgspec.Struct, frozen=True, rename="camel"):
    remaining_capacity: int = 0
    pending_requests: int = 0


class _Described(msgspec.Struct, rename="camel"):
    model_version: str = ""
    workers: list[_Worker] = []
    job_queue_status: _Queue = _Queue()


class VersionWorkers(NamedTuple):
    """One version of a model.

    `ready` and `busy` count workers, `pending` counts requests. `status` is the status of a busy worker.
    """

    name: str
    ready: int
    busy: int
    pending: int
    status: str = ""


_error = msgspec.json.Decoder(ErrorBody).decode
_described = msgspec.json.Decoder(list[_Described]).decode


def decode_error(body: bytes) -> ErrorBody:
    """Decode an error's body; an empty `ErrorBody` for any other body."""
    try:
        decoded = _error(body)
    except decoding.MALFORMED_JSON:
        return ErrorBody()
    decoded.message = decoded.message[:MAX_MESSAGE]
    return decoded


def encode_error(code: int, kind: str, message: str) -> bytes:
    """Encode the body of an error."""
    return _encode(ErrorBody(code, kind, message))


def decode_described(body: bytes) -> list[VersionWorkers]:
    """Decode `GET /models/NAME`. Raises `BackendError`."""
    decoded = decoding.decode(_described, body)
    return [
        VersionWorkers(
            one.model_version,
            sum(worker.status == "READY" for worker in one.workers),
            sum(worker.status != "READY" for worker in one.workers),
            one.job_queue_status.pending_requests,
            next((worker.status[:32] for worker in one.workers if worker.status != "READY"), ""),
        )
        for one in decoded
    ]


class Registration(NamedTuple):
    """The options of a load order: `register` becomes the query, `default` is the version to set as the default."""

    register: dict[str, str | int]
    workers: int = 1
    default: str = ""


class _Config(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    url: str = ""
    handler: str = ""
    runtime: str = ""
    batch_size: int = 0
    max_batch_delay: int = 0
    initial_workers: int = 0
    response_timeout: int = 0
    startup_timeout: int = 0
    default_version: str = ""


_config = msgspec.json.Decoder(_Config).decode


def decode_registration(config: str | None) -> Registration:
    """Decode a JSON object of TorchServe's own options. Raises `CallerError`."""
    try:
        decoded = _config(config or "{}")
    except decoding.MALFORMED_JSON as why:
        supported = ", ".join(_Config.__struct_fields__)
        raise CallerError(f"`config` cannot be read: {why}. Known: {supported}.", param="config") from None
    fields = {name: value for name, value in msgspec.structs.asdict(decoded).items() if value}
    default = fields.pop("default_version", "")
    return Registration(fields, decoded.initial_workers or 1, default)


# Codec of TorchServe's gRPC messages by their tags: the messages are few and small.
#
# `org.pytorch.serve.grpc.inference`: PredictionsRequest {1: model_name, 2: model_version, 3: map<string, bytes> input},
# PredictionResponse {1: prediction}, TorchServeHealthResponse {1: health}.

_SERVICE = "/org.pytorch.serve.grpc.inference.InferenceAPIsService/"
PING = f"{_SERVICE}Ping".encode()
PREDICTIONS = f"{_SERVICE}Predictions".encode()
STREAM_PREDICTIONS = f"{_SERVICE}StreamPredictions".encode()
_FIRST, _SECOND, _THIRD = (proto_fields.tag(number) for number in (1, 2, 3))


def encode_request(model: str, version: str, name: str, body: bytes) -> bytes:
    """Encode a PredictionsRequest with one input."""
    entry = _field(_FIRST, name.encode()) + _field(_SECOND, body)
    version_field = _field(_SECOND, version.encode()) if version else b""
    return _field(_FIRST, model.encode()) + version_field + _field(_THIRD, entry)


class PredictionsRequest(NamedTuple):
    """A client's PredictionsRequest, decoded."""

    model: str
    version: str
    body: bytes


def decode_request(message: bytes) -> PredictionsRequest:
    """Decode a PredictionsRequest with one input of any name. Raises `CallerError`."""
    try:
        rest, model, inputs = proto_fields.split(message, _FIRST, _THIRD)
        _, version, _ = proto_fields.split(rest, _SECOND, 0)
        if len(inputs) != 1:
            raise CallerError("Send one `input`: servers behind a gateway may accept only a body.", param="input")
        _, _, bodies = proto_fields.split(bytes(inputs[0]), _FIRST, _SECOND)
    except proto_fields.MalformedMessage:
        raise CallerError("The message is not a PredictionsRequest.", code="invalid_message") from None
    return PredictionsRequest(model, version, bytes(bodies[-1]) if bodies else b"")


def encode_response(body: bytes) -> bytes:
    """Encode a PredictionResponse."""
    return _field(_FIRST, body)


def decode_response(message: bytes) -> bytes:
    """Decode the first field of a response: a handler's body, or the server's health. Raises `BackendError`."""
    with decoding.Checked(proto_fields.MalformedMessage):
        rest, _, values = proto_fields.split(message, 0, _FIRST)
        if rest:
            raise proto_fields.MalformedMessage("there is no other field")
    return bytes(values[-1]) if values else b""


def _field(tag: int, value: bytes) -> bytes:
    return proto_fields.head(tag, len(value)) + value
