"""Decodes the errors of servers, in any of their formats.

Nested (OpenAI, vLLM from 0.10 on, llama.cpp), in a list (Gemini), flat (SGLang, TensorRT-LLM, older vLLMs, Mistral), a
text (Ollama's own, TGI, xAI), FastAPI's `detail`, a text or a list of fields, AWS's `__type`, and plain text. Some
gateways have the error of the server behind them as JSON within a message, or as `metadata.raw` (OpenRouter).
"""

from typing import Any

import msgspec

from adapters.wire import decoding

MAX_FIELDS = 5
"""Reported fields at most."""
MAX_TEXT = 2_000
"""Characters of a plain text at most."""
MAX_DEPTH = 3
"""Errors within errors at most."""


class ErrorBody(msgspec.Struct):
    """OpenAI's four keys, all optional; `code` is a string or a number."""

    message: str | None = None
    type: str | None = None
    param: str | None = None
    code: str | int | None = None


_decode = msgspec.json.Decoder().decode


def decode_error(body: bytes, depth: int = 0) -> ErrorBody:
    """Decode the error in a body; empty without an error, and for a page of HTML."""
    try:
        decoded = _decode(body)
    except decoding.MALFORMED_JSON:
        return ErrorBody(_plain(body))
    if isinstance(decoded, str):
        return ErrorBody(_text(decoded))
    if isinstance(decoded, list):
        decoded = decoded[0] if decoded else None
    if not isinstance(decoded, dict):
        return ErrorBody()
    error = decoded.get("error")
    if error is None and isinstance(decoded.get("errors"), list):
        error = next(iter(decoded["errors"]), None)
    if isinstance(error, dict):
        return _flat(error, depth)
    if isinstance(error, str):
        rest = _flat(decoded, depth)
        return ErrorBody(error or rest.message, rest.type, rest.param, rest.code)
    return ErrorBody() if error is not None else _flat(decoded, depth)


def _plain(body: bytes) -> str | None:
    """A text that is no page and no damaged JSON."""
    try:
        text = body[:MAX_TEXT].decode().strip()
    except UnicodeDecodeError:
        return None
    return None if not text or text[0] in "<{[" else text


def _flat(body: dict[str, Any], depth: int) -> ErrorBody:
    message, param = _worded(body.get("message", body.get("Message")), depth)
    if message is None:
        message, param = _worded(body.get("detail"), depth)
    metadata = body.get("metadata")
    if depth < MAX_DEPTH and isinstance(metadata, dict) and (raw := _text(metadata.get("raw"))):
        inner = decode_error(raw.encode("utf-8", "replace"), depth + 1).message or raw[:MAX_TEXT]
        message = f"{message}: {inner}" if message else inner
    code = body.get("code")
    error_code = code if isinstance(code, str | int) and not isinstance(code, bool) else None
    kind = _text(body.get("type")) or _text(body.get("status"))
    if kind is None and (kind := _text(body.get("__type"))) is not None:
        kind = kind.rpartition("#")[2]
    return ErrorBody(message, kind, _text(body.get("param")) or param, error_code)


def _worded(value: Any, depth: int) -> tuple[str | None, str | None]:
    """The message, and the field at fault."""
    if isinstance(value, str) and value.startswith("{") and depth < MAX_DEPTH:
        inner = decode_error(value.encode("utf-8", "replace"), depth + 1)
        return inner.message or value, inner.param
    if isinstance(value, dict):
        return _worded(value.get("detail", value.get("message")), depth)
    if isinstance(value, list):
        return _fields(value)
    return _text(value), None


def _fields(value: list[Any]) -> tuple[str | None, str | None]:
    """Read pydantic's list of errors: `loc` begins with the part of the request."""
    messages: list[tuple[str, str]] = []
    for each in value[:MAX_FIELDS]:
        if isinstance(each, dict) and (message := _text(each.get("msg"))):
            place = each.get("loc")
            steps = [str(step) for step in place if step != "body"] if isinstance(place, list) else []
            messages.append((".".join(steps), message))
    if not messages:
        return None, None
    return "; ".join(f"{path}: {message}" if path else message for path, message in messages), messages[0][0] or None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
