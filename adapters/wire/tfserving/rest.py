"""Decodes TensorFlow Serving's REST other than inference: signatures and versions of models."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from adapters.errors import BackendError
from adapters.wire import decoding
from adapters.wire.decoding import whole_number
from adapters.wire.oip.bodies import ModelMetadata, TensorMetadata
from adapters.wire.tfserving.datatypes import DATATYPES
from adapters.wire.tfserving.predict_v1 import SERVING

PLATFORM = "tensorflow_savedmodel"
STATES = {
    "START": "LOADING",
    "LOADING": "LOADING",
    "AVAILABLE": "READY",
    "UNLOADING": "UNLOADING",
    "END": "UNAVAILABLE",
}
"""The repository extension's names of TensorFlow Serving's states."""


class _Dim(msgspec.Struct):
    size: int | str = -1


class _Shape(msgspec.Struct):
    dim: list[_Dim] = []
    unknown_rank: bool = False


class _Info(msgspec.Struct):
    dtype: str = "DT_INVALID"
    tensor_shape: _Shape | None = None


class _Signature(msgspec.Struct):
    inputs: dict[str, _Info] = {}
    outputs: dict[str, _Info] = {}


class _Defs(msgspec.Struct):
    signature_def: dict[str, Any]


class _Metadata(msgspec.Struct):
    signature_def: _Defs


class _Described(msgspec.Struct):
    metadata: _Metadata


class _Reason(msgspec.Struct, frozen=True):
    error_message: str = ""


class _Version(msgspec.Struct):
    version: int | str
    state: str
    status: _Reason = _Reason()


class _Status(msgspec.Struct):
    model_version_status: list[_Version] = []


class VersionState(NamedTuple):
    """One version of a model, its state in the terms of the repository extension, and the reason of the state."""

    number: str
    state: str
    reason: str = ""

    @property
    def available(self) -> bool:
        return self.state == "READY"


_described = msgspec.json.Decoder(_Described)
_status = msgspec.json.Decoder(_Status)


def decode_metadata(body: bytes) -> dict[str, Any]:
    """Decode a model's signatures by name. Raises `BackendError`."""
    decoded: _Described = _read(_described, body)
    return decoded.metadata.signature_def.signature_def


def decode_status(body: bytes) -> list[VersionState]:
    """Decode the versions of a model, the newest first. Raises `BackendError`."""
    decoded: _Status = _read(_status, body)
    return [
        VersionState(str(one.version), STATES.get(one.state, ""), one.status.error_message)
        for one in decoded.model_version_status
    ]


def signature_of(signatures: Mapping[str, Any], name: str) -> str:
    """Return the signature of a name: without a name the default, or the only signature.

    A name without a signature is returned unchanged, and the server rejects it.
    """
    if name or SERVING in signatures:
        return name or SERVING
    own = [declared for declared in signatures if not declared.startswith("__")]
    return own[0] if len(own) == 1 else SERVING


def model_metadata(
    model: str, versions: list[VersionState], signatures: dict[str, Any], signature: str = ""
) -> ModelMetadata:
    """Return the metadata of one signature. Raises `BackendError` if the signature is malformed."""
    try:
        decoded = msgspec.convert(signatures.get(signature_of(signatures, signature), {}), _Signature)
        return ModelMetadata(
            model,
            sorted([version.number for version in versions if version.available], key=_number),
            PLATFORM,
            [_tensor(name, info) for name, info in decoded.inputs.items()],
            [_tensor(name, info) for name, info in decoded.outputs.items()],
            signatures,
        )
    except (msgspec.ValidationError, ValueError):
        raise _unreadable() from None


def _tensor(name: str, info: _Info) -> TensorMetadata:
    """Convert a tensor's metadata. A tensor of unknown rank gets one dimension."""
    shape = info.tensor_shape
    dims = (-1,) if shape is None or shape.unknown_rank else tuple([int(dim.size) for dim in shape.dim])
    return TensorMetadata(name, DATATYPES.get(info.dtype, info.dtype), dims)


def _number(version: str) -> int:
    return whole_number(version) or 0


def _read(decoder: Any, body: bytes) -> Any:
    try:
        return decoder.decode(body)
    except decoding.MALFORMED_JSON:
        raise _unreadable() from None


def _unreadable() -> BackendError:
    return decoding.malformed()
