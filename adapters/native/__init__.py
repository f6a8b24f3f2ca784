"""The native core: C for the bytes of HTTP/1.1 and for limits, in the extension module `_core`, which an installation
may lack.

messages.c  requests, responses and chunks that arrived whole
fields.c    header fields as bytes
text.c      the characters of HTTP, and the names of fields
rows.c      rows of the table in which workers count limits
module.c    the extension module

Each function accepts the common form of its input and returns None for every other input (`settle` and `undo` of a row
return False), which its caller then handles in Python (received bytes by httptools). So Python alone defines what is
accepted and every error, and an installation without a compiler lacks nothing but speed. `tests/adapters/native` passes
the same input through both. The environment variable HEADRACE_NATIVE=0 selects Python alone.
"""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from adapters.native._core import Row

__all__ = ["AVAILABLE", "encoded_fields", "row_type", "whole_chunks", "whole_request", "whole_response"]

AVAILABLE = False
"""Whether the extension module is in use."""

Fields = dict[bytes, bytes]


def whole_request(data: bytes | memoryview, max_fields: int) -> tuple[str, bytes, Fields, bool, bytes] | None:
    """Parse exactly one request: the method, the target, the fields, whether the connection persists, and the body."""
    return None


def whole_response(data: bytes | memoryview) -> tuple[int, Fields, bool, bytes, bool] | None:
    """Parse one response, or its head and whole chunks: the status, the fields, whether the connection persists, the
    bytes of the body, and whether the body is complete."""
    return None


def whole_chunks(data: bytes | memoryview) -> tuple[bytes, bool] | None:
    """Parse whole chunks, from the start of a chunk: the bytes of the body, and whether the body is complete."""
    return None


def encoded_fields(fields: Sequence[tuple[str, str]]) -> bytes | None:
    """Encode header fields in Latin-1. Raises `ValueError` if a field contains a line break."""
    return None


row_type: "type[Row] | None" = None
"""A row of the table of `gateway.limits.shared`, with the limits that one process has for it. `take` returns the
reserved amounts by unit, the reserved picos, and the budget's window."""

if os.environ.get("HEADRACE_NATIVE") != "0":
    try:
        from adapters.native import _core
        from adapters.native._core import encoded_fields, whole_chunks, whole_request, whole_response

        row_type = _core.Row

        AVAILABLE = True
    except ImportError:
        pass
