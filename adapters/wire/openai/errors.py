"""Decodes errors of servers with OpenAI's API, in any of their formats.

Nested (OpenAI, vLLM from 0.10 on, llama.cpp), flat (SGLang, TensorRT-LLM, older vLLMs, Mistral), a text (Ollama's own,
TGI), and FastAPI's `detail`, a text or a list of fields. Mistral has `detail` within its message, as an object or JSON.
"""

from typing import Any

import msgspec

from adapters.wire import decoding

MAX_FIELDS = 5
"""Reported fields at most."""


class ErrorBody(msgspec.Struct):
    """OpenAI's four keys, all optional; `code` is a string or a number."""

    message: str | None = None
    type: str | None = None
    param: str | None = None
    code: str | int | None = None


_decode = msgspec.json.Decoder(dict[str, Any]).decode


def decode_error(body: bytes) -> ErrorBody:
    """Decode the error in a body; empty without an error."""
    try:
        decoded = _decode(body)
    except decoding.MALFORMED_JSON:
        return ErrorBody()
    error = decoded.get("error")
    if isinstance(error, dict):
        return _flat(error)
    if isinstance(error, str):
        return ErrorBody(error or _text(decoded.get("message")))
    return ErrorBody() if error is not None else _flat(decoded)


def _flat(body: dict[str, Any]) -> ErrorBody:
    message, param = _worded(body.get("message"))
    if message is None:
        message, param = _worded(body.get("detail"))
    code = body.get("code")
    error_code = code if isinstance(code, str | int) and not isinstance(code, bool) else None
    return ErrorBody(message, _text(body.get("type")), _text(body.get("param")) or param, error_code)


def _worded(value: Any) -> tuple[str | None, str | None]:
    """The message, and the field at fault."""
    if isinstance(value, str) and value.startswith("{"):
        try:
            inner = _decode(value.encode())
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return value, None
        return _worded(inner) if "detail" in inner else (value, None)
    if isinstance(value, dict):
        return _worded(value.get("detail"))
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
