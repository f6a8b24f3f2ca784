"""A request as TorchServe gives it to a handler, and the bytes of a handler's answer.

The body of a request is one parameter, `body`; the parts of a form are parameters of their own. The query of the path
is left out, as there. JSON becomes a value, text becomes text, and anything else stays bytes.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from email.parser import BytesHeaderParser
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl

BODY = "body"
DATA = "data"
"""The name of a request without headers, as over TorchServe's gRPC."""
MAX_PARTS: Final = 1000
"""Parts of a form. A body of millions of them would take minutes of a copy of the model."""
_headers = BytesHeaderParser()


class Parameter(NamedTuple):
    """A part of a request."""

    name: str
    content_type: str
    value: bytes


def parameters_of(body: bytes, request: Mapping[str, Any] | None) -> list[Parameter]:
    """The parts of a request. `request` has the `headers`; None for a body alone.

    Raises ValueError for a form that is malformed, or has too many parts.
    """
    if request is None:
        return [Parameter(DATA, "", body)]
    content_type = str(request.get("headers", {}).get("content-type", ""))
    kind = content_type.partition(";")[0].strip().lower()
    if kind == "multipart/form-data":
        return _multipart(body, content_type)
    if kind == "application/x-www-form-urlencoded":
        text = body.decode("latin-1")
        fields = parse_qsl(text, keep_blank_values=True, encoding="utf-8", errors="replace", max_num_fields=MAX_PARTS)
        return [Parameter(name, "", value.encode()) for name, value in fields]
    return [Parameter(BODY, kind, body)]


def value_of(parameter: Parameter) -> Any:
    """The value that a handler gets."""
    try:
        if parameter.content_type == "application/json":
            return json.loads(parameter.value)
        if parameter.content_type.startswith("text"):
            return parameter.value.decode()
    except (ValueError, RecursionError):
        pass
    return bytearray(parameter.value)


def _multipart(body: bytes, content_type: str) -> list[Parameter]:
    boundary = _headers.parsebytes(f"Content-Type: {content_type}\r\n\r\n".encode("latin-1", "replace")).get_boundary()
    if not boundary:
        raise ValueError("the form has no boundary")
    edge = b"\r\n--" + boundary.encode("latin-1", "replace")
    _first, *pieces = (b"\r\n" + body).split(edge, MAX_PARTS + 2)
    if len(pieces) > MAX_PARTS + 1:
        raise ValueError(f"the form has more than {MAX_PARTS} parts")
    parts: list[Parameter] = []
    for piece in pieces:
        if piece.startswith(b"--"):
            return parts
        head, separator, content = piece.partition(b"\r\n\r\n")
        fields = _headers.parsebytes(head.lstrip(b"\r\n") + b"\r\n\r\n")
        name = fields.get_param("name", header="content-disposition")
        if not separator or not isinstance(name, str):
            raise ValueError("a part of the form has no name")
        # As there, a part without a file's name is a plain value, whose type does not count.
        kind = str(fields.get_content_type()) if fields.get_filename() is not None and "content-type" in fields else ""
        parts.append(Parameter(name, kind, content))
    raise ValueError("the form is cut off")


def encoded(value: Any) -> bytes:
    """An answer as the client gets it. Raises TypeError for a value that has no form."""
    if isinstance(value, bytes | bytearray):
        return bytes(value)
    if isinstance(value, str):
        return value.encode(errors="replace")
    if type(value).__module__ == "torch" and type(value).__name__ == "Tensor":
        import torch

        torch.save(value, buffer := io.BytesIO())
        return buffer.getvalue()
    return json.dumps(value, indent=2).encode()
