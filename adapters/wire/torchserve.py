"""TorchServe's JSON: its errors, and what its management API tells of a model."""

from typing import NamedTuple

import msgspec

from adapters.errors import BackendError

MAX_MESSAGE = 2_000
_encode = msgspec.json.Encoder().encode


class ErrorBody(msgspec.Struct):
    """`type` is a Java class's name."""

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


class Version(NamedTuple):
    """One version of a model. `ready` and `busy` count workers, `pending` requests."""

    name: str
    ready: int
    busy: int
    pending: int


_error = msgspec.json.Decoder(ErrorBody).decode
_described = msgspec.json.Decoder(list[_Described]).decode


def decode_error(body: bytes) -> ErrorBody:
    """An empty one for what is none."""
    try:
        told = _error(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ErrorBody()
    told.message = told.message[:MAX_MESSAGE]
    return told


def encode_error(code: int, kind: str, message: str) -> bytes:
    """The error body of this protocol."""
    return _encode(ErrorBody(code, kind, message))


def decode_described(body: bytes) -> list[Version]:
    """What `GET /models/NAME` tells. Raises `BackendError`."""
    try:
        told = _described(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise BackendError("The upstream's answer cannot be read.", code="upstream_bad_response") from None
    return [
        Version(
            one.model_version,
            sum(worker.status == "READY" for worker in one.workers),
            sum(worker.status != "READY" for worker in one.workers),
            one.job_queue_status.pending_requests,
        )
        for one in told
    ]
