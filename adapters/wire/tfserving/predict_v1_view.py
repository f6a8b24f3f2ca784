"""A request of KServe's v1 or TensorFlow Serving's REST, decoded as far as a gateway needs: only rows are counted.

The values are decoded to tensors only for a server of another protocol, by the model's metadata.
"""

import json
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import asdict, replace

from adapters.errors import CallerError, Unsupported
from adapters.requests import Codec, ExplainRequest, Fields, InferRequest, ModelRequest, R
from adapters.tensors import CLASSES, NO_PARAMETERS, Data, Inference, RequestedOutput
from adapters.types import Verb
from adapters.wire import decoding
from adapters.wire.decoding import check_json
from adapters.wire.oip.bodies import ModelMetadata
from adapters.wire.oip.request_view import rows_of, with_model, without_model
from adapters.wire.tfserving.predict_v1 import SIGNATURE, PredictV1Payload, decode_examples, decode_predict

_MOST_CLASSES = 1000
_SPACE = b" \t\r\n"
_ABSENT = Raw(b"")


class _Fields(msgspec.Struct, gc=False):
    instances: list[Raw] | msgspec.UnsetType = msgspec.UNSET
    inputs: Raw = _ABSENT
    examples: list[Raw] | msgspec.UnsetType = msgspec.UNSET


_decode_fields = msgspec.json.Decoder(_Fields).decode
_items = msgspec.json.Decoder(list[Raw]).decode
_fields = msgspec.json.Decoder(Fields).decode
_encode = msgspec.json.Encoder().encode


def request_of(
    body: bytes,
    *,
    model: str,
    version: str,
    verb: Verb = "predict",
    explainer: bool = False,
    look: tuple[int, bool] | None = None,
    timeout: float | None = None,
) -> InferRequest:
    """Return the request of a body. `look` is the result of `summarize`, if the front has it already.

    Raises `CallerError` if the body is not a JSON object; NaN and the infinities are accepted.
    """
    rows, by_row = summarize(body) if look is None else look
    request = InferRequest(
        model=model,
        version=version,
        payload=PredictV1Payload(body=body, verb=verb, by_row=by_row, explainer=explainer),
        rows=rows,
        size=len(body),
        timeout=timeout,
        codec=PLAIN,
    )
    if verb != "explain":
        return request
    return ExplainRequest(**{**asdict(request), "kind": "infer" if explainer else "explain"})


def predicted(request: InferRequest) -> InferRequest:
    """The request for the prediction itself, for a server that explains it by the same tensors."""
    payload = request.payload
    if not isinstance(payload, PredictV1Payload) or request.kind != "explain":
        return request
    return replace(request, payload=replace(payload, verb="predict"))


def summarize(body: bytes) -> tuple[int, bool]:
    """Return the number of rows, and whether a request has its tensors row by row."""
    check_json(body)
    try:
        request = _decode_fields(body)
        rows = request.instances if isinstance(request.instances, list) else request.examples
        if isinstance(rows, list):
            return max(1, len(rows)), True
        if not request.inputs:
            return 1, True
        whole = request.inputs
        if _opens(whole, b"{"):
            whole = next((value for value in _fields(whole).values() if _opens(value, b"[")), whole)
    except decoding.MALFORMED_JSON:
        return _seen_in(_read(body))
    # A list of one dimension is one row: a batch has a further dimension.
    return (len(_items(whole)) if _opens(whole, b"[") and _opens(memoryview(whole)[1:], b"[") else 1), False


def _opens(raw: Raw | memoryview, sign: bytes) -> bool:
    return bytes(memoryview(raw)[:1024]).lstrip(_SPACE)[:1] == sign


def _seen_in(fields: dict[str, Any]) -> tuple[int, bool]:
    """Summarize a body that only Python's own parser accepts, or whose rows are not a list.

    The model's server accepts or rejects such rows.
    """
    key = next((key for key in ("instances", "examples") if key in fields), "")
    if key or "inputs" not in fields:
        rows = fields.get(key)
        return (max(1, len(rows)) if isinstance(rows, list) else 1), True
    whole = fields["inputs"]
    if isinstance(whole, dict):
        whole = next((value for value in whole.values() if isinstance(value, list)), whole)
    return (len(whole) if isinstance(whole, list) and whole and isinstance(whole[0], list) else 1), False


def _read(body: bytes) -> dict[str, Any]:
    """Decode a body with Python's own parser, which accepts NaN and takes three times as long."""
    try:
        decoded = json.loads(body)
        if b"\\u" in body:  # this parser accepts a half of a surrogate pair
            json.dumps(decoded, ensure_ascii=False).encode()
    except RecursionError:
        raise CallerError("The JSON body is nested too deeply.", code="invalid_json") from None
    except ValueError as why:
        raise CallerError(f"The body is not valid JSON: {why}.", code="invalid_json") from None
    if not isinstance(decoded, dict):
        raise CallerError("The body must be a JSON object.", code="invalid_json")
    return decoded


def inference(request: InferRequest, declared: ModelMetadata) -> Inference:
    """Decode the tensors by the model's metadata. Raises `CallerError`."""
    payload = _payload(request)
    if payload.verb == "explain" and not payload.explainer:
        raise Unsupported(f"The model `{request.model[:128]}` has no explainer.")
    of_examples = payload.verb in ("classify", "regress")
    decoded = (decode_examples if of_examples else decode_predict)(payload.body, declared)
    made = Inference(request.model, request.version, "", decoded.parameters or NO_PARAMETERS, decoded.inputs)
    if payload.verb == "classify":
        made.outputs = _scores(declared)
    if not payload.by_row and made.inputs:
        payload.rows = rows_of(made.inputs[0].shape)
    return made


def _payload(request: InferRequest) -> PredictV1Payload:
    assert isinstance(request.payload, PredictV1Payload)
    return request.payload


def _scores(declared: ModelMetadata) -> list[RequestedOutput]:
    """Request the classes of a model's only output; empty for a model with several outputs."""
    if len(declared.outputs) != 1:
        return []
    (output,) = declared.outputs
    count = output.shape[-1] if output.shape else -1
    return [RequestedOutput(output.name, {CLASSES: count if count > 0 else _MOST_CLASSES})]


class _Plain(Codec):
    """Codec of this wire. Every request is an `InferRequest` of `request_of`."""

    def fields(self, request: ModelRequest) -> Fields:
        """Return the fields of KServe's `parameters`, and TensorFlow Serving's signature name."""
        assert isinstance(request, InferRequest)
        return without_model(_parameters(_top(request.payload.body)))

    def rewrite(self, request: R, fields: Fields) -> R:
        assert isinstance(request, InferRequest)
        top = _top(request.payload.body)
        model, parameters = with_model(request, fields, _parameters(top))
        written = dict(parameters)
        signature = written.pop(SIGNATURE, None)
        top = {name: value for name, value in top.items() if name not in (SIGNATURE, "parameters")}
        if signature is not None:
            top[SIGNATURE] = signature
        if written:
            top["parameters"] = Raw(_encode(written))
        payload = replace(_payload(request), body=_encode(top), decoded=None, rows=None)
        return replace(request, model=model, payload=payload)

    def inference(self, request: InferRequest) -> Inference:
        raise Unsupported(f"The servers of `{request.model[:128]}` do not report its inputs.")

    def canonical(self, request: ModelRequest) -> tuple[Data, ...]:
        """Return the key of a request: its body unchanged."""
        assert isinstance(request, InferRequest)
        payload = _payload(request)
        key = (payload.wire, payload.verb, payload.explainer, request.model, request.version)
        return _encode(key), payload.body

    def is_deterministic(self, request: ModelRequest) -> bool:
        return True


def _top(body: bytes) -> Fields:
    try:
        return _fields(body)
    except decoding.MALFORMED_JSON:
        return {name: Raw(json.dumps(value).encode()) for name, value in _read(body).items()}


def _parameters(top: Fields) -> Fields:
    parameters = top.get("parameters")
    values = {} if parameters is None or not _opens(parameters, b"{") else _fields(parameters)
    return {**values, SIGNATURE: top[SIGNATURE]} if SIGNATURE in top else values


PLAIN = _Plain()
