"""The gateway's view of an Open Inference Protocol request over HTTP.

Shapes and parameters are decoded; data is skipped and forwarded unchanged.
"""

from hashlib import blake2b
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta, Raw
from msgspec.structs import replace

from adapters.errors import CallerError
from adapters.requests import Codec, ExplainRequest, Fields, InferRequest, ModelRequest, R
from adapters.tensors import Data, Inference
from adapters.types import InferKind
from adapters.wire import decoding
from adapters.wire.decoding import check_json
from adapters.wire.oip import parameters as oip_parameters
from adapters.wire.oip import requests as oip
from adapters.wire.oip.bodies import HttpPayload

MODEL = "model"
SEQUENCE = "sequence_id"
LONGEST_NAME = 128
_NULL = Raw(b"null")


class _Tensor(msgspec.Struct, gc=False):
    shape: tuple[int, ...] = ()
    parameters: oip_parameters.MemoryRegion | None = None


class _Parameters(msgspec.Struct, gc=False):
    """Null has the wrong type, and differs from an absent value."""

    sequence_id: Annotated[int, Meta(ge=0)] | str = 0
    sequence_start: bool = False
    sequence_end: bool = False
    priority: Annotated[int, Meta(ge=0)] = 0
    timeout: Annotated[int, Meta(ge=0)] = 0
    binary_data_output: bool = False
    triton_enable_empty_final_response: bool = False


class _Fields(msgspec.Struct, gc=False):
    inputs: list[_Tensor] = []
    outputs: list[_Tensor] | None = None
    parameters: _Parameters | None = None


class _Prompt(_Parameters, gc=False):
    """A request of the generate extension, which may have parameters beside its inputs."""

    parameters: _Parameters | None = None


_decode_fields = msgspec.json.Decoder(_Fields).decode
_prompt = msgspec.json.Decoder(_Prompt).decode
_fields = msgspec.json.Decoder(Fields).decode
_encode = msgspec.json.Encoder().encode


class RequestSummary(NamedTuple):
    """The fields of a request that routing reads."""

    rows: int = 1
    sequence: str = ""
    starts: bool = False
    ends: bool = False


def rows_of(shape: tuple[int, ...]) -> int:
    """The first dimension of a batch. A tensor of one dimension is a single row."""
    return max(1, shape[0]) if len(shape) > 1 else 1


def sequence_name(id_: int | str | None) -> str:
    """The identity of a sequence: a number differs from a text. Zero and an empty text are no sequence.

    Raises `CallerError` for a text beyond the length that servers accept.
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
    """The request of a body; `opened` is the body without its `encoding`. Raises `CallerError`."""
    payload = HttpPayload(
        body=body,
        header_length=header_length,
        encoding=encoding,
        opened=opened if encoding else b"",
        accepts=accepts,
    )
    seen = summarize(payload.plain, kind, header_length) if seen is None else seen
    return (ExplainRequest if kind == "explain" else InferRequest)(
        model=model,
        version=version,
        kind=kind,
        stream=kind in ("infer_stream", "generate_stream"),
        payload=payload,
        size=len(body),
        rows=seen.rows,
        sequence=seen.sequence,
        starts=seen.starts,
        ends=seen.ends,
        codec=HTTP,
    )


def request_from(inference: Inference, size: int) -> InferRequest:
    """The request of an inference from another protocol. `size` is that of the client's body."""
    return request_with(inference, size, *oip.encode_request(inference))


def request_with(inference: Inference, size: int, body: bytes, length: int | None) -> InferRequest:
    """The request with the encoded body."""
    return InferRequest(
        model=inference.model_name,
        version=inference.model_version,
        payload=HttpPayload(body=body, header_length=length, decoded=inference),
        size=size,
        rows=rows_of(inference.inputs[0].shape) if inference.inputs else 1,
        codec=HTTP,
    )


def summarize(body: bytes, kind: InferKind, header_length: int | None) -> RequestSummary:
    """Decode the fields that routing reads. Raises `CallerError`."""
    if header_length == 0:
        return RequestSummary()
    head, _ = oip.split(body, header_length)
    check_json(head)
    try:
        if kind in ("generate", "generate_stream"):
            prompt = _prompt(head)
            return _summary(1, prompt.parameters if prompt.parameters and not prompt.sequence_id else prompt)
        request = _decode_fields(head)
    except decoding.MALFORMED_JSON as error:
        raise oip.not_json(error) from None
    for tensor in (*request.inputs, *(request.outputs or ())):
        if tensor.parameters is not None and tensor.parameters.shared_memory_region:
            raise oip_parameters.in_shared_memory()
    rows = rows_of(request.inputs[0].shape) if request.inputs else 1
    return _summary(rows, request.parameters) if request.parameters is not None else RequestSummary(rows)


def _summary(rows: int, parameters: _Parameters) -> RequestSummary:
    sequence = sequence_name(parameters.sequence_id)
    return RequestSummary(rows, sequence, parameters.sequence_start, parameters.sequence_end)


def without_parameters(
    body: bytes, kind: InferKind, header_length: int | None, names: frozenset[str]
) -> tuple[bytes, int | None]:
    """The body without these parameters, and the length of its JSON. Raises `CallerError`."""
    head, blobs = oip.split(body, header_length)
    fields = _read(head)
    if kind in ("generate", "generate_stream"):
        fields = {name: value for name, value in fields.items() if name not in names}
    if bytes(fields.get("parameters", _NULL)).lstrip().startswith(b"{"):
        rest = {name: value for name, value in _read(fields["parameters"]).items() if name not in names}
        fields = {**fields, "parameters": Raw(_encode(rest))}
    written = _encode(fields)
    return written + blobs, None if header_length is None else len(written)


def without_model(fields: Fields) -> Fields:
    """The fields without the model's own parameter of that name: a route's value of `model` is the request's model."""
    return {name: value for name, value in fields.items() if name != MODEL}


def with_model(request: InferRequest, fields: Fields, before: Fields) -> tuple[str, Fields]:
    """The model and the parameters that a route wrote. The route may have set another model."""
    model = request.model
    if MODEL in fields:
        model = msgspec.json.decode(fields[MODEL], type=str)
        fields = without_model(fields)
    return model, {**fields, MODEL: before[MODEL]} if MODEL in before else fields


def separate(request: R, tenant: str) -> R:
    """See `Codec.separate`. A number stays a number and a text stays a text."""
    fields = request.codec.fields(request)
    if SEQUENCE in fields:
        fields = {**fields, SEQUENCE: _own(tenant, fields[SEQUENCE])}
    else:  # of the generate extension, one level down
        nested = _read(fields["parameters"])
        nested[SEQUENCE] = _own(tenant, nested[SEQUENCE])
        fields = {**fields, "parameters": Raw(_encode(nested))}
    return request.codec.rewrite(request, fields)


def _own(tenant: str, raw: Raw) -> Raw:
    id_ = msgspec.json.decode(raw, type=int | str)
    digest = blake2b(f"{tenant}\0{id_}".encode(errors="surrogatepass"), digest_size=16)
    if isinstance(id_, str):
        return Raw(_encode(digest.hexdigest()))
    return Raw(_encode(int.from_bytes(digest.digest()[:8]) >> 1 or 1))


class _Http(Codec):
    """The codec of these requests."""

    def fields(self, request: ModelRequest) -> Fields:
        assert isinstance(request, InferRequest)
        payload = _payload(request)
        if payload.header_length == 0:
            return {}
        head, _ = oip.split(payload.plain, payload.header_length)
        return without_model(self._parameters(request, _read(head)))

    def rewrite(self, request: R, fields: Fields) -> R:
        assert isinstance(request, InferRequest)
        payload = _payload(request)
        if payload.header_length == 0:
            raise CallerError("This model takes no raw request: its route writes parameters, and it has none.")
        head, blobs = oip.split(payload.plain, payload.header_length)
        opened = _read(head)
        model, parameters = with_model(request, fields, self._parameters(request, opened))
        generates = request.kind in ("generate", "generate_stream")
        written = _encode(parameters if generates else {**opened, "parameters": Raw(_encode(parameters))})
        length = None if payload.header_length is None else len(written)
        rewritten = HttpPayload(body=written + blobs, header_length=length, accepts=payload.accepts)
        return replace(request, model=model, payload=rewritten)

    @staticmethod
    def _parameters(request: InferRequest, opened: Fields) -> Fields:
        """The parameters of a request; of the generate extension, the whole object."""
        if request.kind in ("generate", "generate_stream"):
            return opened
        parameters = opened.get("parameters", _NULL)
        return {} if bytes(parameters) == b"null" else _read(parameters)

    def separate(self, request: R, tenant: str) -> R:
        return separate(request, tenant)

    def inference(self, request: InferRequest) -> Inference:
        payload = _payload(request)
        return oip.decode_request(payload.plain, payload.header_length, request.model, request.version)

    def canonical(self, request: ModelRequest) -> tuple[Data, ...]:
        """The unchanged body, with its id: a cached response has the id of its request."""
        assert isinstance(request, InferRequest)
        payload = _payload(request)
        key = (
            request.kind,
            request.model,
            request.version,
            payload.header_length,
            payload.encoding,
            payload.accepts,
        )
        return _encode(key), payload.body

    def is_deterministic(self, request: ModelRequest) -> bool:
        """Inference is deterministic, and text generation is not."""
        assert isinstance(request, InferRequest)
        return request.kind == "infer"


def _payload(request: InferRequest) -> HttpPayload:
    assert isinstance(request.payload, HttpPayload)
    return request.payload


def _read(raw: bytes | memoryview | Raw) -> Fields:
    try:
        return _fields(raw)
    except decoding.MALFORMED_JSON as error:
        raise oip.not_json(error) from None


HTTP = _Http()
