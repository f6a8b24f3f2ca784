"""The texts of bodies of JSON, replaced by what a guard lets pass. The same value is returned if nothing changes."""

import base64
import binascii
import re
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from adapters.wire import decoding
from gateway.features.guards import files


class Mask(Protocol):
    """Returns a text with its masks. `key` is that of the text in the arguments of a tool; empty for none."""

    def __call__(self, text: str, key: str = "", /) -> str: ...


_STRUCTURE = frozenset(
    (
        "type", "object", "model", "id", "index", "tool_call_id", "call_id", "tool_use_id", "finish_reason",
        "stop_reason", "finishReason", "status", "signature", "thought_signature", "thoughtSignature", "media_type",
        "mimeType", "mime_type", "encrypted_content", "format", "detail", "service_tier", "system_fingerprint",
        "datatype", "responseId", "modelVersion", "created_at",
    )
)  # fmt: skip
"""Fields of an API that have no text of a person or a model."""
_ROLES = frozenset(("system", "developer", "user", "assistant", "model", "tool", "function"))
"""Roles of messages. A template of chats may write any other role into the prompt."""
_FREE = frozenset(("arguments", "input", "args", "response", "result", "output"))
"""Fields whose objects are arguments or results of tools, so that their keys are texts too."""
_SCHEMAS = frozenset(
    (
        "function", "parameters", "parametersJsonSchema", "input_schema", "json_schema", "schema", "responseSchema",
        "responseJsonSchema", "properties", "$defs", "definitions",
    )
)  # fmt: skip
"""Fields with the description of a tool or an answer, which its model reads with all of its keys."""
_SCHEMA_WORDS = frozenset(
    (
        "type", "properties", "required", "description", "items", "enum", "const", "format", "default", "title",
        "additionalProperties", "anyOf", "oneOf", "allOf", "$ref", "$defs", "definitions", "minimum", "maximum",
        "minItems", "maxItems", "minLength", "maxLength", "pattern", "nullable", "object", "string", "number",
        "integer", "boolean", "array", "null", "name", "arguments", "parameters", "function", "schema", "strict",
    )
)  # fmt: skip
"""Words that each schema has: a guard against one of them must not forbid all tools."""
_UNREAD = ("logprob", "token_ids", "avgLogprobs")
"""Parts of the names of fields that have the tokens of the text again."""
_TOKENS = [(part.encode(), re.compile(rf'{part}[^"]*"\s*:(?!\s*null\b)'.encode())) for part in _UNREAD]
"""For each the end of such a name in a body, and the colon before a value."""
_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


def masked_tensors(body: bytes | memoryview, mask: Mask) -> bytes | None:
    """A body of JSON with tensors, with masks in all texts; None if nothing changes. Raises `ValueError`."""
    return _masked(body, lambda value: masked_strings(value, mask))


def masked_json(body: bytes | memoryview, mask: Mask, *, answers: bool = False, free: bool = False) -> bytes | None:
    """A body of JSON with masks; None if nothing changes. Raises what `mask` raises, and `ValueError` for other bodies.

    Of `answers` also the log-probabilities and the tokens are removed, which have the text again. All parts of `free`
    bodies are texts: they are those of no known API.
    """
    return _masked(body, lambda value: masked_value(without_tokens(value) if answers else value, mask, free=free))


def _masked(body: bytes | memoryview, examine: Callable[[Any], Any]) -> bytes | None:
    """The body with what `examine` makes of its value; None if nothing changes."""
    value = _decoded(body)
    try:
        changed = examine(value)
        return None if changed is value else _encode(changed)
    except RecursionError:  # the decoder takes more levels
        raise ValueError("the body is nested too deeply") from None


def _decoded(body: bytes | memoryview) -> Any:
    try:
        return _decode(body)
    except decoding.MALFORMED_JSON as error:
        raise ValueError("the body is not JSON") from error


def masked_value(value: Any, mask: Mask, name: str = "", *, free: bool = False) -> Any:
    """A value of JSON with masks. `free` values are arguments of tools: all of their parts are texts."""
    if isinstance(value, str):
        return masked_text(value, mask, name, free=free)
    if isinstance(value, list):
        named = (str, int, float) if free else (str,)
        changed = [masked_value(each, mask, name if isinstance(each, named) else "", free=free) for each in value]
        return changed if any(new is not old for new, old in zip(changed, value, strict=True)) else value
    if isinstance(value, dict):
        if not free and name in _SCHEMAS:
            return _masked_object(value, lambda text, _="": text if text in _SCHEMA_WORDS else mask(text), free=True)
        return _masked_object(value, mask, free=free or name in _FREE)
    if free and isinstance(value, int | float) and not isinstance(value, bool):
        shown = _encode(value).decode()
        return value if (text := mask(shown, name)) == shown else text
    return value


def masked_strings(value: Any, mask: Mask) -> Any:
    """A value with masks in all texts but its keys: of tensors, whose names mean nothing."""
    if isinstance(value, str):
        changed: Any = mask(value)
        return value if changed == value else changed
    if isinstance(value, list):
        changed = [masked_strings(each, mask) for each in value]
        return changed if any(new is not old for new, old in zip(changed, value, strict=True)) else value
    if isinstance(value, dict):
        if isinstance(encoded := value.get("b64"), str) and len(value) == 1:
            return value if (other := _masked_base64(encoded, mask)) == encoded else {"b64": other}
        changed = {key: masked_strings(each, mask) for key, each in value.items()}
        return changed if any(changed[key] is not value[key] for key in value) else value
    return value


def _masked_base64(encoded: str, mask: Mask) -> str:
    """Encoded bytes with masks; those that are no text stay as they are."""
    try:
        text = base64.b64decode(encoded, validate=True).decode("utf-8", "surrogateescape")
    except binascii.Error:
        return mask(encoded)
    changed = mask(text)
    return encoded if changed == text else base64.b64encode(changed.encode("utf-8", "surrogateescape")).decode()


def masked_text(text: str, mask: Mask, name: str, *, free: bool) -> str:
    """A text with masks. Arguments that are JSON stay JSON."""
    if not free and (name in _STRUCTURE or _is_role(text, name)):
        return text
    if not free and name in ("url", "image_url") and files.is_data_url(text):
        return files.masked_file(text, mask)
    changed = mask(text, name) if free else mask(text)
    if changed == text:
        return text
    return masked_arguments(text, changed) if name == "arguments" else changed


def _is_role(text: str, name: str) -> bool:
    return name == "role" and text in _ROLES


def masked_arguments(arguments: str, changed: str) -> str:
    """Masked arguments. If a mask has made them invalid, a text of JSON takes their place."""
    if not is_json(arguments) or is_json(changed):
        return changed
    return _encode("[…]").decode()


def is_json(text: str) -> bool:
    """Whether a text is JSON."""
    try:
        _decode(text)
    except decoding.MALFORMED_JSON:
        return False
    return True


def has_tokens(body: bytes) -> bool:
    """Whether a body of JSON without escapes in its names may have log-probabilities or tokens."""
    return any(part in body and pattern.search(body) is not None for part, pattern in _TOKENS)


def without_tokens(value: Any) -> Any:
    """A value without log-probabilities and tokens."""
    if isinstance(value, list):
        entries = [without_tokens(each) for each in value]
        return entries if any(new is not old for new, old in zip(entries, value, strict=True)) else value
    if isinstance(value, dict):
        fields = {key: None if _is_unread(key) else without_tokens(each) for key, each in value.items()}
        return fields if any(fields[key] is not value[key] for key in value) else value
    return value


def _is_unread(key: str) -> bool:
    return any(part in key for part in _UNREAD)


def _masked_object(value: dict[str, Any], mask: Mask, *, free: bool) -> dict[str, Any]:
    encoded = value.get("type") != "text" and any(kind in value for kind in files.KINDS)
    changed: dict[str, Any] = {}
    same = True
    for key, each in value.items():
        if isinstance(each, str) and not free and key in files.FIELDS and (encoded or key != "data"):
            new: Any = files.masked_file(each, mask, declared=files.is_text_file(value))
        else:
            new = masked_value(each, mask, key, free=free)
        label = mask(key) if free else key
        same = same and new is each and label == key
        changed[label] = new
    return value if same else changed


def masked_field(raw: bytes | memoryview, mask: Mask, name: str) -> bytes | None:
    """The encoded value of one field of a body, with masks; None if nothing changes. Raises `ValueError`."""
    return _masked(raw, lambda value: masked_value(value, mask, name))
