"""The JSON objects that the operators' door takes."""

import asyncio
import json
from typing import Any

from aiohttp import web

from config.problem import closest
from gateway.fronts.admin.guard import Refused

_SECONDS = 10.0
"""How long a body may be on its way."""


async def read_object(request: web.Request, **fields: type) -> dict[str, Any]:
    """The body's object; an empty body is an empty one. Raises `Refused` for a field not among `fields`, or whose
    value is not of the type given."""
    try:
        async with asyncio.timeout(_SECONDS):
            text = await request.text()
        body = json.loads(text) if text.strip() else {}
    except TimeoutError:
        raise Refused(408, "request_timeout", "the body did not come") from None
    except (ValueError, RecursionError):  # a UnicodeDecodeError is one
        raise Refused(400, "invalid_json", "the body is not JSON") from None
    if not isinstance(body, dict):
        raise Refused(400, "invalid_json", "the body is not a JSON object")
    for name, value in body.items():
        if name not in fields:
            near = closest(name, fields)
            hint = f': did you mean "{near}"?' if near else ""
            raise Refused(400, "invalid_request", f"unknown field{hint}", param=name[:128])
        if not isinstance(value, fields[name]):
            raise Refused(400, "invalid_request", f"expected {_NAMES[fields[name]]}", param=name)
    return body


_NAMES = {str: "a text", dict: "an object", int: "a whole number", list: "a list"}
