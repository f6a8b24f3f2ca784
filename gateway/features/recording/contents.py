"""Redacted bodies and answers, in the form in which they can be sent and compared again."""

import hashlib
from typing import NamedTuple
from urllib.parse import quote

import msgspec
from msgspec import Raw

from adapters import offload
from adapters.errors import InferenceError
from adapters.requests import AppRequest, GenerateRequest, InferRequest, ModelRequest
from adapters.types import Form
from adapters.wire.native_chat import NativeChat
from adapters.wire.oip.bodies import header_length
from adapters.wire.tfserving.predict_v1 import PredictV1Payload
from gateway.features.recording.entries import Content
from gateway.features.recording.sample import Draft
from gateway.telemetry.redaction.streams import texts_of
from gateway.telemetry.redaction.texts import compiled

INLINE = 16 * 1024
"""Bytes that are redacted on the event loop. Larger bodies are redacted in a worker process."""
HEADER_LENGTH = "inference-header-content-length"
GRPC = "grpc:"
"""The beginning of the path of a request that was not HTTP."""
JSON = "application/json"
USER_FIELDS = ("user", "safety_identifier")
_encode = msgspec.json.Encoder().encode


class ResendSource(NamedTuple):
    """A request as it can be sent again. `fields` are those of a JSON body, else `body` is the body."""

    path: str
    method: str
    content_type: str
    fields: dict[str, Raw] | None = None
    body: bytes = b""
    head: int | None = None
    """Bytes of JSON before binary tensors; None for a body of one part."""
    user: str = ""
    """The stand-in for the end user in `fields`."""


class AnswerPart(NamedTuple):
    """The held part of an answer. `is_json` is false for binary data."""

    data: bytes
    content_type: str
    head: int | None = None
    is_stream: bool = False
    is_events: bool = False
    truncated: bool = False


class Settings(NamedTuple):
    """The settings of all contents."""

    redact: tuple[str, ...]
    digest_key: bytes
    digest_only: bool


async def content_of(draft: Draft, user: str, settings: Settings, *, whole: bool) -> Content | None:
    """The content of a draft; None if it cannot be redacted now or at all. `whole` is false for an answer that broke.

    `user` stands for the end user in the body.
    """
    if draft.exchange.record.withheld:
        return None  # it was refused before its personal data was masked
    return await redacted_draft(draft, user, settings, whole=whole)


async def redacted_draft(draft: Draft, user: str, settings: Settings, *, whole: bool) -> Content | None:
    """The content of a draft whose personal data was masked; None if it cannot be redacted now or at all.

    An empty `user` leaves the end user in the body.
    """
    answer = None if settings.digest_only else answer_of(draft, whole=whole)
    source = source_of(draft.request)._replace(user=user)
    size = draft.size
    try:
        if size < INLINE:
            return redacted(source, answer, settings)
        return await offload.run(max(size, offload.LARGE), redacted, source, answer, settings)
    except InferenceError:  # too many large bodies wait, or it takes too much memory
        return None


def source_of(request: ModelRequest) -> ResendSource:
    """The parts that a repeated request needs."""
    if isinstance(request, NativeChat):
        return ResendSource(request.native_path, "POST", JSON, request.payload.native)
    if isinstance(request, GenerateRequest):
        return ResendSource(f"/v1{request.path}", "POST", JSON, request.fields)
    if isinstance(request, InferRequest):
        return _inference(request)
    if isinstance(request, AppRequest):
        query = f"?{request.query}" if request.query else ""
        path = f"/apps/{quote(request.model)}{request.path}{query}"
        is_grpc = request.content_type == "application/x-protobuf"
        body = b"" if request.encoding else request.body  # compressed data cannot be redacted
        return ResendSource(GRPC + path if is_grpc else path, request.method, request.content_type, body=body)
    return ResendSource("", "POST", "")


def _inference(request: InferRequest) -> ResendSource:
    payload, model = request.payload, quote(request.model, safe="")
    if isinstance(payload, PredictV1Payload):
        version = f"/versions/{quote(request.version)}" if request.version else ""
        return ResendSource(f"/v1/models/{model}{version}:{payload.verb}", "POST", JSON, body=payload.body)
    version = f"/versions/{quote(request.version)}" if request.version else ""
    path = f"/v2/models/{model}{version}/{request.kind}"
    if request.wire != "oip-http":
        return ResendSource(GRPC + path, "POST", request.wire, body=payload.body, head=0)
    head = header_length(payload)
    return ResendSource(
        path, "POST", JSON if head is None else "application/octet-stream", body=payload.plain, head=head
    )


def answer_of(draft: Draft, *, whole: bool) -> AnswerPart | None:
    """The held answer; None without one."""
    answer = draft.answer
    if answer is None or answer.form.encoding:
        return None
    form: Form = answer.form
    data, is_stream = b"".join(draft.pieces), answer.body is None
    is_events = is_stream and answer.content_type.startswith("text/event-stream")
    head = form.header_length
    if form.wire in ("oip-grpc", "tfserving-grpc"):
        head = 0
    return AnswerPart(data, answer.content_type, head, is_stream, is_events, draft.overflowed or not whole)


def redacted(source: ResendSource, answer: AnswerPart | None, settings: Settings) -> Content:
    """Redact a request and its answer, perhaps in a worker process."""
    body = source.body if source.fields is None else _encode(source.fields)
    digest = hashlib.blake2b(body, digest_size=16, key=settings.digest_key).digest()
    path = compiled(settings.redact).text(source.path)
    if settings.digest_only:
        return Content(0, path, source.method, digest=digest)
    if source.fields is not None and source.user:
        body = _encode({**source.fields, **_user_fields(source.fields, source.user)})
    data, head, changed = _parts(body, source.head, settings)
    content = Content(0, path, source.method, _headers(source.content_type, head), data, digest)
    content.redacted = changed or path != source.path
    if answer is not None:
        _add_answer(content, answer, settings)
    return content


def _add_answer(content: Content, answer: AnswerPart, settings: Settings) -> None:
    content.streamed, content.truncated = answer.is_stream, answer.truncated
    content.answer_type = answer.content_type
    data = answer.data
    if answer.is_stream and not answer.is_events:  # a secret may be cut anywhere, and no text can be joined
        content.truncated = True
        return
    if answer.is_events:
        data = _encode({"texts": texts_of(data)})
    elif answer.truncated and answer.head is None:
        data = compiled(settings.redact).masked(data)
    content.answer, head, changed = _parts(data, answer.head, settings)
    content.redacted |= changed
    content.answer_headers = {} if not head else {HEADER_LENGTH: str(head)}


def _parts(body: bytes, head: int | None, settings: Settings) -> tuple[bytes, int | None, bool]:
    """The redacted body, the bytes of its JSON, and whether it differs. Binary data preserves its length."""
    redaction = compiled(settings.redact)
    if head is None:
        redacted, changed = redaction.body(body)
        return redacted, None, changed
    json, rest = body[:head], body[head:]
    redacted_json, changed = redaction.body(json) if json else (json, False)
    masked = redaction.masked(rest)
    return redacted_json + masked, len(redacted_json), changed or masked != rest


def _user_fields(fields: dict[str, Raw], user: str) -> dict[str, object]:
    """The fields that name the end user, with another name: those of OpenAI's API, and Anthropic's."""
    named: dict[str, object] = {name: user for name in USER_FIELDS if name in fields}
    if "metadata" in fields:
        metadata = msgspec.json.decode(fields["metadata"])
        if isinstance(metadata, dict) and "user_id" in metadata:
            named["metadata"] = {**metadata, "user_id": user}
    return named


def _headers(content_type: str, head: int | None) -> dict[str, str]:
    headers = {"content-type": content_type} if content_type else {}
    return headers if not head else {**headers, HEADER_LENGTH: str(head)}
