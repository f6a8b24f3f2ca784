"""A request of the Open Inference Protocol over HTTP as a gateway sees it: looked into as far as somebody must know.

What is looked at are the shapes and the parameters; data is skipped, and goes on as the bytes that it is.
"""

from hashlib import blake2b
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta, Raw

from adapters.errors import CallerError
from adapters.tensors import Data, Inference
from adapters.types import Codec, InferKind, InferRequest, ModelRequest
from adapters.wire import decoding
from adapters.wire.oip import requests as oip

Fields = dict[str, Raw]
MODEL = "model"
SEQUENCE = "sequence_id"
LONGEST_NAME = 128
_NULL = Raw(b"null")


class _Shape(msgspec.Struct, gc=False):
    shape: tuple[int, ...] = ()


class _Parameters(msgspec.Struct, gc=False):
    """Null is a value of another type, and absent is not null."""

    sequence_id: Annotated[int, Meta(ge=0)] | str = 0
    sequence_start: bool = False
    sequence_end: bool = False
    priority: Annotated[int, Meta(ge=0)] = 0
    timeout: Annotated[int, Meta(ge=0)] = 0
    binary_data_output: bool = False
    triton_enable_empty_final_response: bool = False


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


class RequestSummary(NamedTuple):
    """What there is to know of a request before it is sent on."""

    rows: int = 1
    sequence: str = ""
    starts: bool = False
    ends: bool = False


def rows_of(shape: tuple[int, ...]) -> int:
    """A batch's first dimension. One tensor of one dimension is a row, for a batch has another."""
    return max(1, shape[0]) if len(shape) > 1 else 1


def sequence_name(id_: int | str | None) -> str:
    """What tells sequences apart: numbers and texts are different ones. Zero and an empty text are none.

    Raises `CallerError` for a text that is longer than servers take: they are remembered.
    """
    if not id_:
        return ""
    if isinstance(id_, str) and len(id_) > LONGEST_NAME:
        raise CallerError(f"`{SEQUENCE}` has more than {LONGEST_NAME} characters.", param=SEQUENCE)
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
    opened: bytes = b"",
    seen: RequestSummary | None = None,
) -> InferRequest:
    """What a front got; `opened` is the body without its `encoding`. Raises `CallerError` for no such request."""
    request = InferRequest(
        model=model,
        version=version,
        kind=kind,
        stream=kind in ("infer_stream", "generate_stream"),
        wire="oip-http",
        body=body,
        header_length=header_length,
        encoding=encoding,
        opened=opened if encoding else b"",
        accepts=accepts,
        size=len(body),
        codec=HTTP,
    )
    seen = summarize(request.plain, kind, header_length) if seen is None else seen
    request.rows, request.sequence, request.starts, request.ends = seen
    return request


def request_from(inference: Inference, size: int) -> InferRequest:
    """One that a front of another protocol has made. `size` is that of the body which its client sent."""
    body, length = oip.encode_request(inference)
    request = InferRequest(
        model=inference.model_name,
        version=inference.model_version,
        wire="oip-http",
        body=body,
        header_length=length,
        size=size,
        rows=rows_of(inference.inputs[0].shape) if inference.inputs else 1,
        codec=HTTP,
    )
    request.inference = inference
    return request


def summarize(body: bytes, kind: InferKind, header_length: int | None) -> RequestSummary:
    """What routing reads of a body. Raises `CallerError`."""
    if header_length == 0:
        return RequestSummary()
    head, _ = oip.split(body, header_length)
    try:
        if kind in ("generate", "generate_stream"):
            prompt = _prompt(head)
            return _told(1, prompt.parameters if prompt.parameters and not prompt.sequence_id else prompt)
        request = _asked(head)
    except decoding.MALFORMED_JSON as error:
        raise oip.not_json(error) from None
    rows = rows_of(request.inputs[0].shape) if request.inputs else 1
    return _told(rows, request.parameters) if request.parameters is not None else RequestSummary(rows)


def _told(rows: int, parameters: _Parameters) -> RequestSummary:
    sequence = sequence_name(parameters.sequence_id)
    return RequestSummary(rows, sequence, parameters.sequence_start, parameters.sequence_end)


def without_model(fields: Fields) -> Fields:
    """A parameter of that name is the model's own: what a route writes under it is the request's model."""
    return {name: value for name, value in fields.items() if name != MODEL}


def with_model(request: InferRequest, fields: Fields, before: Fields) -> Fields:
    """The parameters out of what a route wrote, which may have given the request another model."""
    if MODEL in fields:
        request.model = msgspec.json.decode(fields[MODEL], type=str)
        fields = without_model(fields)
    return {**fields, MODEL: before[MODEL]} if MODEL in before else fields


def separate(request: ModelRequest, tenant: str) -> None:
    """See `Codec.separate`. A number stays a number and a text a text, as models may look at them."""
    fields = request.codec.fields(request)
    if SEQUENCE in fields:
        fields = {**fields, SEQUENCE: _own(tenant, fields[SEQUENCE])}
    else:  # of the generate extension, one level down
        nested = _read(fields["parameters"])
        nested[SEQUENCE] = _own(tenant, nested[SEQUENCE])
        fields = {**fields, "parameters": Raw(_encode(nested))}
    request.codec.rewrite(request, fields)


def _own(tenant: str, raw: Raw) -> Raw:
    id_ = msgspec.json.decode(raw, type=int | str)
    digest = blake2b(f"{tenant}\0{id_}".encode(errors="surrogatepass"), digest_size=16)
    if isinstance(id_, str):
        return Raw(_encode(digest.hexdigest()))
    return Raw(_encode(int.from_bytes(digest.digest()[:8]) >> 1 or 1))


class _Http(Codec):
    """Its requests are all `InferRequest`s: they are made here."""

    def fields(self, request: ModelRequest) -> Fields:
        assert isinstance(request, InferRequest)
        if request.header_length == 0:
            return {}
        head, _ = oip.split(request.plain, request.header_length)
        return without_model(self._parameters(request, _read(head)))

    def rewrite(self, request: ModelRequest, fields: Fields) -> None:
        assert isinstance(request, InferRequest)
        if request.header_length == 0:
            raise CallerError("This model takes no raw request: its route writes parameters, and it has none.")
        head, blobs = oip.split(request.plain, request.header_length)
        opened = _read(head)
        parameters = with_model(request, fields, self._parameters(request, opened))
        generates = request.kind in ("generate", "generate_stream")
        written = _encode(parameters if generates else {**opened, "parameters": Raw(_encode(parameters))})
        request.write(written + blobs, None if request.header_length is None else len(written))

    @staticmethod
    def _parameters(request: InferRequest, opened: Fields) -> Fields:
        """Of the generate extension, all that its object holds."""
        if request.kind in ("generate", "generate_stream"):
            return opened
        parameters = opened.get("parameters", _NULL)
        return {} if bytes(parameters) == b"null" else _read(parameters)

    def separate(self, request: ModelRequest, tenant: str) -> None:
        separate(request, tenant)

    def inference(self, request: InferRequest) -> Inference:
        return oip.decode_request(request.plain, request.header_length, request.model, request.version)

    def canonical(self, request: ModelRequest) -> tuple[Data, ...]:
        """As it was written, with its id: that of a kept answer is the one that its request had."""
        assert isinstance(request, InferRequest)
        key = (
            request.kind,
            request.model,
            request.version,
            request.header_length,
            request.encoding,
            request.accepts,
        )
        return _encode(key), request.body

    def is_deterministic(self, request: ModelRequest) -> bool:
        """A model of tensors has no dice; what generates text has."""
        assert isinstance(request, InferRequest)
        return request.kind == "infer"


def _read(raw: bytes | memoryview | Raw) -> Fields:
    try:
        return _fields(raw)
    except decoding.MALFORMED_JSON as error:
        raise oip.not_json(error) from None


HTTP = _Http()
