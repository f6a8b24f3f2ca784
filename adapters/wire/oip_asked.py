"""A request of the Open Inference Protocol over HTTP as a gateway sees it: looked into as far as somebody must know.

What is looked at are the shapes and the parameters; data is skipped, and goes on as the bytes that it is.
"""

import sys
from typing import NamedTuple

import msgspec
from msgspec import Raw

from adapters.errors import CallerError
from adapters.tensors import Inference
from adapters.types import Codec, InferKind, InferRequest, ModelRequest
from adapters.wire import compression, oip

Fields = dict[str, Raw]


class _Shape(msgspec.Struct, gc=False):
    shape: tuple[int, ...] = ()


class _Parameters(msgspec.Struct, gc=False):
    sequence_id: int | str | None = None
    sequence_start: bool | None = None
    sequence_end: bool | None = None


class _Asked(msgspec.Struct, gc=False):
    inputs: list[_Shape] = []
    parameters: _Parameters | None = None


class _Prompt(_Parameters, gc=False):
    """Of the generate extension, whose parameters may stand beside its inputs."""

    parameters: _Parameters | None = None


_asked = msgspec.json.Decoder(_Asked).decode
_prompt = msgspec.json.Decoder(_Prompt).decode
_fields = msgspec.json.Decoder(Fields).decode
_encode = msgspec.json.Encoder().encode


class Seen(NamedTuple):
    """What there is to know of a request before it is sent on."""

    rows: int = 1
    sequence: str = ""
    starts: bool = False
    ends: bool = False


def rows_of(shape: tuple[int, ...]) -> int:
    """A batch's first dimension. One tensor of one dimension is a row, for a batch has another."""
    return max(1, shape[0]) if len(shape) > 1 else 1


def sequence_name(id_: int | str | None) -> str:
    """What tells sequences apart: numbers and texts are different ones. Zero and an empty text are none."""
    if not id_:
        return ""
    return str(id_) if isinstance(id_, int) else f'"{id_}'


def request_of(
    body: bytes,
    *,
    model: str,
    version: str,
    kind: InferKind = "infer",
    header_length: int | None = None,
    encoding: str = "",
    accepts: str = "",
    limit: int = sys.maxsize,
) -> InferRequest:
    """What a front got. Raises `CallerError` for what is no such request, and `TooLarge` for a body that is compressed
    and has more than `limit` bytes when it is not.
    """
    request = InferRequest(
        model=model,
        version=version,
        kind=kind,
        stream=kind in ("infer_stream", "generate_stream"),
        wire="oip-http",
        body=body,
        header_length=header_length,
        encoding=encoding,
        opened=compression.decompress(body, encoding, limit) if encoding else b"",
        accepts=accepts,
        size=len(body),
        codec=HTTP,
    )
    seen = _seen(request)
    request.rows, request.sequence, request.starts, request.ends = seen
    return request


def _seen(request: InferRequest) -> Seen:
    if request.header_length == 0:
        return Seen()
    head, _ = oip.split(request.plain, request.header_length)
    try:
        if request.kind in ("generate", "generate_stream"):
            prompt = _prompt(head)
            return _told(1, prompt.parameters if prompt.parameters and prompt.sequence_id is None else prompt)
        asked = _asked(head)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise oip.not_json(error) from None
    rows = rows_of(asked.inputs[0].shape) if asked.inputs else 1
    return _told(rows, asked.parameters) if asked.parameters is not None else Seen(rows)


def _told(rows: int, parameters: _Parameters) -> Seen:
    sequence = sequence_name(parameters.sequence_id)
    return Seen(rows, sequence, parameters.sequence_start or False, parameters.sequence_end or False)


class _Http(Codec):
    """Its requests are all `InferRequest`s: they are made here."""

    def fields(self, request: ModelRequest) -> Fields:
        """The parameters; of the generate extension, all that its object holds."""
        assert isinstance(request, InferRequest)
        if request.header_length == 0:
            return {}
        head = _read(oip.split(request.plain, request.header_length)[0])
        if request.kind in ("generate", "generate_stream"):
            return head
        return _read(head["parameters"]) if "parameters" in head else {}

    def rewrite(self, request: ModelRequest, fields: Fields) -> None:
        assert isinstance(request, InferRequest)
        if request.header_length == 0:
            raise CallerError("This model takes no raw request: its route writes parameters, and it has none.")
        before = self.fields(request)
        if "model" in fields and fields["model"] is not before.get("model"):
            fields = dict(fields)
            request.model = msgspec.json.decode(fields.pop("model"), type=str)
        head, blobs = oip.split(request.plain, request.header_length)
        if request.kind in ("generate", "generate_stream"):
            written = _encode(fields)
        else:
            written = _encode({**_read(head), "parameters": Raw(_encode(fields))})
        request.write(written + blobs, None if request.header_length is None else len(written))

    def inference(self, request: InferRequest) -> Inference:
        return oip.decode_request(request.plain, request.header_length, request.model, request.version)

    def canonical(self, request: ModelRequest) -> bytes:
        """As it was written, with its id: that of a kept answer is the one that its request had."""
        assert isinstance(request, InferRequest)
        asked = (request.kind, request.model, request.version, request.header_length, request.encoding, request.accepts)
        return _encode(asked) + request.body

    def is_deterministic(self, request: ModelRequest) -> bool:
        """A model of tensors has no dice; what generates text has."""
        assert isinstance(request, InferRequest)
        return request.kind == "infer"


def _read(raw: bytes | memoryview | Raw) -> Fields:
    try:
        return _fields(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise oip.not_json(error) from None


HTTP = _Http()
