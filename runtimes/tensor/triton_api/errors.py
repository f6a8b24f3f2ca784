"""Errors of Triton's Python API."""

from __future__ import annotations

from typing import Final

UNKNOWN, INTERNAL, NOT_FOUND, INVALID_ARG, UNAVAILABLE, UNSUPPORTED, ALREADY_EXISTS, CANCELLED = range(8)
CODES: Final = range(8)


class TritonModelException(Exception):  # Triton's name
    """An error that a model raises, or that an operation on the server causes."""


class TritonError:
    """An error as the outcome of one request."""

    UNKNOWN = UNKNOWN
    INTERNAL = INTERNAL
    NOT_FOUND = NOT_FOUND
    INVALID_ARG = INVALID_ARG
    UNAVAILABLE = UNAVAILABLE
    UNSUPPORTED = UNSUPPORTED
    ALREADY_EXISTS = ALREADY_EXISTS
    CANCELLED = CANCELLED

    def __init__(self, message: str, code: int = INTERNAL) -> None:
        if not isinstance(message, str):
            raise TypeError(f"the message of a TritonError is a str, not {type(message).__name__}")
        if code not in CODES:
            raise TypeError(f"{code!r} is not a code of a TritonError")
        self._message = message
        self._code = int(code)

    def code(self) -> int:
        return self._code

    def message(self) -> str:
        return self._message
