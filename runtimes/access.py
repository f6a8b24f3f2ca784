"""The key that a runtime demands when it listens on a network, from the environment."""

import hmac
import os
from collections.abc import Awaitable

from adapters.http1.message import Handler, Request, Response
from adapters.wire.spans import PATH

KEY_VARIABLE = "HEADRACE_RUNTIME_KEY"
_OPEN = {("GET", b"/metrics"), ("POST", PATH.encode())}
"""Requests without content of clients: metrics and times."""
_REFUSED = b'{"error": {"message": "The key of the runtime is missing or wrong.", "type": "invalid_request_error"}}'


class KeyedHandler:
    """Forwards requests that have the key, and answers all others with 401."""

    def __init__(self, handler: Handler, key: str) -> None:
        self._handler = handler
        self._expected = f"Bearer {key}".encode()

    def __call__(self, request: Request) -> Awaitable[Response]:
        given = (request.headers.get("authorization") or "").encode("latin-1", "replace")
        if hmac.compare_digest(given, self._expected) or (request.method, request.target) in _OPEN:
            return self._handler(request)
        return _refuse()


def take_key() -> str:
    """The key of the environment, which is removed there: programs that the runtime starts do not inherit it."""
    return os.environ.pop(KEY_VARIABLE, "")


def keyed(handler: Handler, key: str) -> Handler:
    """The handler behind a key; the handler itself without one."""
    return KeyedHandler(handler, key) if key else handler


async def _refuse() -> Response:
    return Response(401, [("content-type", "application/json")], _REFUSED)
