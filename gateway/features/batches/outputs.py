"""The lines of output files and of error files, in the form of each API."""

from typing import Any

import msgspec
from msgspec import Raw

from gateway.features.batches.rows import Api, new_id

_encode = msgspec.json.Encoder().encode
_UNFINISHED = {
    "batch_expired": "The batch expired before this request ran.",
    "batch_cancelled": "The batch was cancelled before this request ran.",
}
_ANTHROPIC = {"batch_expired": "expired", "batch_cancelled": "canceled"}


def answered(api: Api, custom_id: str, status: int, request_id: str, body: Raw) -> bytes:
    """The line of a request that has a response, also that of a failure."""
    if api == "anthropic":
        result = {"type": "succeeded", "message": body} if status < 400 else {"type": "errored", "error": body}
        return _encode({"custom_id": custom_id, "result": result})
    response = {"status_code": status, "request_id": request_id, "body": body}
    return _encode({"id": new_id("batch_req_"), "custom_id": custom_id, "response": response, "error": None})


def unreadable(custom_id: str | None, number: int, code: str, message: str) -> bytes:
    """The line of a request that cannot be sent. Only OpenAI's batches have such lines."""
    error = {"code": code, "message": f"Line {number}: {message}", "line": number}
    return _encode({"id": new_id("batch_req_"), "custom_id": custom_id, "response": None, "error": error})


def unfinished(api: Api, custom_id: Any, code: str) -> bytes:
    """The line of a request without a result."""
    if api == "anthropic":
        return _encode({"custom_id": custom_id, "result": {"type": _ANTHROPIC[code]}})
    error = {"code": code, "message": _UNFINISHED[code]}
    return _encode({"id": new_id("batch_req_"), "custom_id": custom_id, "response": None, "error": error})
