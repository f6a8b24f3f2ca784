"""Requests of every door behind guards: what is sent has passed. A request that cannot be read is refused."""

import asyncio
import dataclasses
from collections.abc import Callable
from typing import ParamSpec, TypeVar
from urllib.parse import unquote

from msgspec import Raw
from msgspec.structs import replace

from adapters.errors import CallerError
from adapters.offload import codecs
from adapters.requests import AppRequest, Fields, GenerateRequest, InferRequest, ModelQuery, ModelRequest
from adapters.tensors import SHARED_MEMORY, Tensor, element_count, join_bytes, split_bytes
from adapters.wire.anthropic.message_request import TokenCount
from adapters.wire.native_chat import NativePayload
from adapters.wire.oip.bodies import HttpPayload
from adapters.wire.tfserving.predict_v1 import PredictV1Payload
from gateway.features.guards import texts
from gateway.features.guards.files import has_files
from gateway.features.guards.verdicts import Examining

LARGE = 256 * 1024
"""Bytes of a request that is examined in a thread."""
_SLOWER = 16
"""How much longer personal data takes to be found than words: a smaller request goes to a thread."""
NO_TEXTS = frozenset(
    (
        "model", "stream", "stream_options", "user", "metadata", "safety_identifier", "prompt_cache_key", "tool_choice",
        "service_tier", "modalities", "reasoning_effort", "encoding_format", "store", "include", "truncation",
        "previous_response_id", "conversation", "anthropic_version", "anthropic_beta", "labels", "cachedContent",
    )
)  # fmt: skip
"""Fields of a request that its model does not read."""

_LABELS = frozenset(("user", "metadata", "safety_identifier", "prompt_cache_key", "labels"))
"""Those that may have a name or an address of a person, which a server receives."""
_TOKENS = frozenset(("prompt", "input"))
"""Fields that may have tokens in the place of texts."""
_ENCODED = frozenset(("prompt_token_ids", "prompt_embeds", "input_ids", "input_embeds"))
"""Fields of some servers that have tokens or embeddings in the place of texts."""

P = ParamSpec("P")
T = TypeVar("T")
G = TypeVar("G", bound=GenerateRequest)


async def guarded(request: ModelRequest, guard: Examining) -> ModelRequest:
    """The request that may be sent: the same, or one with masks. Raises `ContentFiltered` and `Unsupported`."""
    if isinstance(request, TokenCount):
        chat = await guarded(request.chat, guard)
        return request if chat is request.chat else replace(request, chat=chat)
    if isinstance(request, GenerateRequest):
        return await beside(_weight(request.size, guard), _text, request, guard)
    if isinstance(request, InferRequest):
        return await _tensors(request, guard)
    if isinstance(request, ModelQuery):
        return request
    if isinstance(request, AppRequest):
        return await beside(_weight(request.size, guard), _app, request, guard)
    raise guard.unreadable("requests of this kind")


async def beside(size: int, examine: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """The result of a function of a text of so many bytes: of a large one in a thread."""
    return await asyncio.to_thread(examine, *arguments, **named) if size >= LARGE else examine(*arguments, **named)


def _weight(size: int, guard: Examining) -> int:
    return size if guard.personal is None else size * _SLOWER


def _app(request: AppRequest, guard: Examining) -> AppRequest:
    """A request to an app, whose address has no place for masks."""
    address = unquote(f"{request.path}?{request.query.replace('+', ' ')}")
    if guard.masked(address) != address:
        raise guard.unreadable("an address with a text that it masks")
    if not request.body:
        return request
    if request.encoding or not _is_json(request.content_type):
        raise guard.unreadable("bodies that are not JSON")
    try:
        body = texts.masked_json(request.body, guard.masked, free=True)
    except ValueError:
        raise guard.unreadable("bodies that are not JSON") from None
    return request if body is None else replace(request, body=body, size=len(body))


def _text(request: G, guard: Examining) -> G:
    payload = request.payload
    if isinstance(payload, NativePayload):
        changed = _changed({**payload.native, **payload.added}, guard)
        if not changed:
            return request
        native = {name: changed.get(name, raw) for name, raw in payload.native.items()}
        added = {name: changed.get(name, raw) for name, raw in payload.added.items()}
        return replace(request, payload=replace(payload, native=native, added=added, chat=None))
    fields = request.fields
    changed = _changed(fields, guard)
    return request.with_fields({**fields, **changed}) if changed else request


def _changed(fields: Fields, guard: Examining) -> Fields:
    """The fields with masks, and only these."""
    changed: Fields = {}
    read: Fields = {}
    for name, raw in fields.items():
        view = memoryview(raw)
        if name in NO_TEXTS:
            if name in _LABELS and (value := _masked_label(view, guard)) is not None:
                changed[name] = Raw(value)
            continue
        if (name in _TOKENS and b'"' not in bytes(view)) or (name in _ENCODED and bytes(view) != b"null"):
            raise guard.unreadable("prompts of tokens")
        read[name] = raw
    views = [memoryview(raw) for raw in read.values()]
    if sum(map(len, views)) < LARGE and not any(map(has_files, views)) and guard.clears(views):
        return changed
    for name, view in zip(read, views, strict=True):
        try:
            value = texts.masked_field(view, guard.masked, name)
        except ValueError:
            raise CallerError(f"`{name[:64]}` is not valid JSON.", param=name[:64]) from None
        if value is not None:
            changed[name] = Raw(value)
    return changed


def _masked_label(raw: memoryview, guard: Examining) -> bytes | None:
    """A field of no prompt without personal data, whose values come back; None if nothing changes."""
    if guard.personal is None:
        return None
    try:
        return texts.masked_json(raw, guard.personal.masked, free=True)
    except ValueError:
        return None  # refused where it is read


# ── tensors ───────────────────────────────────────────────────────────────────────────────────────────


async def _tensors(request: InferRequest, guard: Examining) -> InferRequest:
    payload = request.payload
    if isinstance(payload, PredictV1Payload) or (isinstance(payload, HttpPayload) and payload.header_length is None):
        try:
            body = await beside(_weight(len(payload.plain), guard), texts.masked_tensors, payload.plain, guard.masked)
        except ValueError:
            raise CallerError("The body is not valid JSON.", code="invalid_json") from None
        if body is None:
            return request
        if isinstance(payload, PredictV1Payload):
            return replace(request, payload=replace(payload, body=body, decoded=None), size=len(body))
        return replace(request, payload=HttpPayload(body=body, accepts=payload.accepts), size=len(body))
    if request.wire == "tfserving-grpc":
        raise guard.unreadable("requests of TensorFlow Serving over gRPC")
    if isinstance(payload, HttpPayload) and payload.header_length == 0:
        await beside(_weight(request.size, guard), masked_bytes, payload.plain, guard, masks=False)
        return request
    inference = await codecs.inference_of(request)
    inputs = await beside(_weight(request.size, guard), masked_all, inference.inputs, guard)
    parameters = texts.masked_strings(inference.parameters, guard.masked)
    if parameters is inference.parameters and all(
        new is old for new, old in zip(inputs, inference.inputs, strict=True)
    ):
        return request
    changed = dataclasses.replace(inference, inputs=inputs, parameters=parameters)
    made = await codecs.request_from(changed, request.size)
    return replace(request, payload=made.payload, rows=made.rows, size=made.size, codec=made.codec)


def masked_all(tensors: list[Tensor], guard: Examining) -> list[Tensor]:
    """Tensors with masks; each that does not change is the same. Raises `CallerError`."""
    return [masked_tensor(tensor, guard) for tensor in tensors]


def masked_tensor(tensor: Tensor, guard: Examining) -> Tensor:
    """A tensor with masks in its elements of BYTES; the same if nothing changes. Raises `CallerError`."""
    if tensor.datatype != "BYTES":
        return tensor
    if SHARED_MEMORY in tensor.parameters:
        raise guard.unreadable("texts in shared memory")
    elements = split_bytes(tensor.data, element_count(tensor.shape), tensor.name)
    masked = [masked_bytes(element, guard) for element in elements]
    if masked == elements:
        return tensor
    return Tensor(tensor.name, tensor.datatype, tensor.shape, join_bytes(masked), tensor.parameters)


def masked_bytes(element: bytes, guard: Examining, *, masks: bool = True) -> bytes:
    """Bytes with masks; those that are no text stay as they are. Raises `Unsupported` if masks are not possible."""
    text = bytes(element).decode("utf-8", "surrogateescape")
    masked = guard.masked(text)
    if masked != text and not masks:
        raise guard.unreadable("raw bodies")
    return element if masked == text else masked.encode("utf-8", "surrogateescape")


def _is_json(content_type: str) -> bool:
    return content_type.partition(";")[0].strip().lower() in ("application/json", "")
