"""Decodes upstream responses: any malformed response raises the same error, `upstream_bad_response`."""

import json
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, TypeVar

import msgspec

from adapters.errors import BackendError

MALFORMED_JSON: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Exceptions of a JSON decoder for text that is not JSON, is nested too deeply, or has another type."""

BAD_RESPONSE: Final = "upstream_bad_response"

B = TypeVar("B")
T = TypeVar("T")


def decode(decoder: Callable[[B], T], body: B, subject: str = "response") -> T:
    """Decode JSON from an upstream. Raises `BackendError`, whose message names the `subject`."""
    try:
        return decoder(body)
    except MALFORMED_JSON:
        raise malformed(subject) from None


def loose(body: bytes) -> Any:
    """Decode JSON as some servers write it. Texts may have halves of surrogate pairs, numbers that JSON lacks are null,
    and bytes that are not UTF-8 are replaced. Raises one of `MALFORMED_JSON`."""
    try:
        return json.loads(body.decode("utf-8", "replace"), parse_constant=lambda _: None)
    except ValueError as error:
        raise msgspec.DecodeError(str(error)) from None


def strict(body: bytes) -> bytes:
    """Encode such JSON as the standard has it, for a decoder. Raises one of `MALFORMED_JSON`."""
    return json.dumps(loose(body), ensure_ascii=False).encode("utf-8", "replace")


class Checked:
    """A context that converts malformed JSON and the given exceptions to a `BackendError`."""

    __slots__ = ("_exceptions", "_subject")

    def __init__(self, *exceptions: type[Exception], subject: str = "response") -> None:
        self._exceptions = (*MALFORMED_JSON, *exceptions)
        self._subject = subject

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if kind is not None and issubclass(kind, self._exceptions):
            raise malformed(self._subject) from None


def malformed(subject: str = "response") -> BackendError:
    """Return the error for an upstream body that violates its protocol."""
    return bad_response(f"The upstream's {subject} cannot be decoded.")


def bad_response(message: str) -> BackendError:
    """Return the error for an unusable upstream response."""
    return BackendError(message, code=BAD_RESPONSE)
