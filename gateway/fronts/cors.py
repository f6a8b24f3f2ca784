"""Cross-origin resource sharing (the Fetch standard), for every front of the data listener.

A page sends its key in a separate header, so no response allows the browser's credentials.
"""

import re
from collections.abc import Awaitable, Callable

from adapters.http1.message import Headers, Request, Response
from config.schema.listen import CorsConfig
from gateway.fronts.errors import openai_refusal

MAX_HEADERS = 4096
_METHODS = "GET, HEAD, POST, PUT, PATCH, DELETE"
_NAMES = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+(?:[ \t]*,[ \t]*[A-Za-z0-9!#$%&'*+.^_`|~-]+)*")
_VARY = ("vary", "Origin")


class Cors:
    """The handler in front of all fronts if the configuration lists origins."""

    def __init__(self, fronts: Callable[[Request], Awaitable[Response]], config: CorsConfig) -> None:
        self._fronts = fronts
        self._origins = frozenset(config.origins)
        self._max_age = f"{config.max_age:.0f}"

    async def __call__(self, http: Request) -> Response:
        """Answer one request."""
        origin = http.headers.get("origin")
        if http.method == "OPTIONS" and origin is not None and "access-control-request-method" in http.headers:
            return self._preflight(http, origin)
        return self.share(await self._fronts(http), origin)

    def refuse(self, status: int, code: str, message: str, headers: Headers) -> Response:
        """The rejection of a request that reaches no front, readable by pages of allowed origins."""
        return self.share(openai_refusal(status, code, message), headers.get("origin"))

    def share(self, response: Response, origin: str | None) -> Response:
        """The response with the headers that let pages of allowed origins read it."""
        if origin is None or origin not in self._origins:
            return Response(response.status, [*response.headers, _VARY], response.body)
        allowed = (("access-control-allow-origin", origin), ("access-control-expose-headers", "*"))
        return Response(response.status, [*response.headers, *allowed, _VARY], response.body)

    def _preflight(self, http: Request, origin: str) -> Response:
        """Answer a preflight request, which a browser sends without a key before the request itself."""
        if origin not in self._origins:
            message = "Pages of this origin may not send requests here: http.cors does not name it."
            refused = openai_refusal(403, "origin_not_allowed", message)
            return Response(refused.status, [*refused.headers, _VARY], refused.body)
        fields = [
            ("access-control-allow-origin", origin),
            ("access-control-allow-methods", _METHODS),
            ("access-control-max-age", self._max_age),
            _VARY,
        ]
        requested = http.headers.get("access-control-request-headers") or ""
        if len(requested) <= MAX_HEADERS and _NAMES.fullmatch(requested):
            fields.append(("access-control-allow-headers", requested))
        return Response(200, fields)
