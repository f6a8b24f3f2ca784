"""Recorded requests that are never sent: they change state, have effects, or are not recorded in full."""

import msgspec
from msgspec import Raw

from adapters.tensors import SHARED_MEMORY
from gateway.features.recording.contents import GRPC, HEADER_LENGTH
from gateway.features.recording.entries import Content, RecordEntry
from gateway.features.shadow.exclusions import SAFE_METHODS, exclusion_of_fields

_TEXTS = frozenset({"/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/v1/embeddings"})
_fields = msgspec.json.Decoder(dict[str, Raw]).decode


def reason_not_sent(entry: RecordEntry, content: Content | None) -> str:
    """The reason why a request is not sent: `body`, `grpc`, `state`, `effects` or `operation`; empty if it is."""
    if content is None or not content.path:
        return "body"
    if content.path.startswith(GRPC):
        return "grpc"
    if entry.sequence:
        return "state"
    if content.path.startswith("/apps/"):
        return "" if content.method in SAFE_METHODS and entry.operation == "app" else "effects"
    if not content.body:
        return "body"
    if content.path in _TEXTS:
        return _of_text(content)
    if content.path.startswith(("/v2/models/", "/v1/models/")):
        return "state" if _uses_shared_memory(content) else ""
    return "operation"


def _of_text(content: Content) -> str:
    try:
        return exclusion_of_fields(_fields(content.body))
    except msgspec.MsgspecError:
        return "body"


def _uses_shared_memory(content: Content) -> bool:
    """Whether the JSON of an inference names a region of shared memory, to which a repetition would write."""
    length = content.headers.get(HEADER_LENGTH)
    end = int(length) if length else len(content.body)
    return content.body.find(SHARED_MEMORY.encode(), 0, end) >= 0
