"""Refusals of servers that speak OpenAI, in any of the shapes that they have.

Nested (OpenAI, vLLM from 0.10 on, llama.cpp), flat (SGLang, TensorRT-LLM, older vLLMs, Mistral), a text alone (Ollama's
own, TGI), and FastAPI's `detail`, which is a text or a list of fields, and which Mistral puts into its message, as an
object or once more as JSON.
"""

from typing import Any

import msgspec

from adapters.wire import decoding

MAX_FIELDS = 5
"""Of those at fault, how many are told."""


class ErrorBody(msgspec.Struct):
    """OpenAI's four keys, all optional, code a string or a number."""

    message: str | None = None
    type: str | None = None
    param: str | None = None
    code: str | int | None = None


_decode = msgspec.json.Decoder(dict[str, Any]).decode


def decode_error(body: bytes) -> ErrorBody:
    """The error in a body; empty when there is none to find."""
    try:
        told = _decode(body)
    except decoding.MALFORMED_JSON:
        return ErrorBody()
    error = told.get("error")
    if isinstance(error, dict):
        return _flat(error)
    if isinstance(error, str):
        return ErrorBody(error or _text(told.get("message")))
    return ErrorBody() if error is not None else _flat(told)


def _flat(told: dict[str, Any]) -> ErrorBody:
    message, param = _worded(told.get("message"))
    if message is None:
        message, param = _worded(told.get("detail"))
    code = told.get("code")
    known = code if isinstance(code, str | int) and not isinstance(code, bool) else None
    return ErrorBody(message, _text(told.get("type")), _text(told.get("param")) or param, known)


def _worded(told: Any) -> tuple[str | None, str | None]:
    """What is wrong, and with which field."""
    if isinstance(told, str) and told.startswith("{"):
        try:
            inner = _decode(told.encode())
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return told, None
        return _worded(inner) if "detail" in inner else (told, None)
    if isinstance(told, dict):
        return _worded(told.get("detail"))
    if isinstance(told, list):
        return _fields(told)
    return _text(told), None


def _fields(told: list[Any]) -> tuple[str | None, str | None]:
    """As pydantic lists them: `loc` begins with where the field was looked for."""
    found: list[tuple[str, str]] = []
    for each in told[:MAX_FIELDS]:
        if isinstance(each, dict) and (message := _text(each.get("msg"))):
            place = each.get("loc")
            steps = [str(step) for step in place if step != "body"] if isinstance(place, list) else []
            found.append((".".join(steps), message))
    if not found:
        return None, None
    return "; ".join(f"{path}: {message}" if path else message for path, message in found), found[0][0] or None


def _text(told: Any) -> str | None:
    return told if isinstance(told, str) else None
