"""An issuer of OAuth's access tokens, as strict as RFC 6749."""

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import parse_qsl, unquote_plus

from adapters.http1.message import Request, Response
from adapters.http1.server import Server

CLIENT, SECRET = "gate:way", "s3cret-of-the-client/+%"
FORM = "application/x-www-form-urlencoded"


def answer(status: int, body: object) -> Response:
    """An answer with JSON."""
    return Response(status, [("content-type", "application/json")], json.dumps(body).encode())


class Issuer:
    """Issues `token-1`, `token-2` and so on. `lifetime` is that of each, in seconds; `down` refuses all."""

    def __init__(self) -> None:
        self.url = ""
        self.issued = 0
        self.lifetime: object = 3600
        self.down: Response | None = None
        self.forms: list[dict[str, str]] = []

    async def __call__(self, http: Request) -> Response:
        if self.down is not None:
            return self.down
        problem = await self._problem(http)
        if problem is not None:
            return answer(401 if problem == "invalid_client" else 400, {"error": problem})
        self.issued += 1
        body = {"access_token": f"token-{self.issued}", "token_type": "Bearer", "expires_in": self.lifetime}
        return answer(200, body)

    async def _problem(self, http: Request) -> str | None:
        if http.method != "POST" or http.path != "/oauth/token" or http.headers.get("content-type") != FORM:
            return "invalid_request"
        pairs = parse_qsl((await http.read()).decode("ascii"), keep_blank_values=True, strict_parsing=True)
        form = dict(pairs)
        self.forms.append(form)
        if len(form) != len(pairs):  # no parameter is sent twice
            return "invalid_request"
        basic = http.headers.get("authorization")
        if basic is not None:
            if "client_secret" in form:  # one method of authentication
                return "invalid_request"
            scheme, _, encoded = basic.partition(" ")
            user, _, password = base64.b64decode(encoded, validate=True).decode().partition(":")
            pair = (unquote_plus(user), unquote_plus(password)) if scheme == "Basic" else ()
        else:
            pair = form.get("client_id", ""), form.get("client_secret", "")
        if pair != (CLIENT, SECRET):
            return "invalid_client"
        return None if form.get("grant_type") == "client_credentials" else "unsupported_grant_type"


@asynccontextmanager
async def issuer() -> AsyncIterator[Issuer]:
    """One that listens."""
    made = Issuer()
    server = Server(made)
    host, port = await server.listen_tcp("127.0.0.1", 0)
    made.url = f"http://{host}:{port}/oauth/token"
    try:
        yield made
    finally:
        await server.aclose()
