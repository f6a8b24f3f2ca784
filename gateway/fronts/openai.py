"""OpenAI's door: HTTP in, `core.handle`, HTTP out."""

import asyncio
import itertools
import re
import secrets
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple

from adapters.base import Answer
from adapters.errors import CallerError, ClientGone, InferenceError, NotFound
from adapters.http1.message import Request, Response
from adapters.types import GenerateRequest
from adapters.wire import openai as wire
from adapters.wire import sse
from config.globs import is_glob
from config.schema import ModelConfig
from gateway.auth.keys import Principal, bearer
from gateway.core import Core
from gateway.explain import header
from gateway.fronts import errors, rate_limits
from gateway.telemetry import Record
from policies import rules

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_KEY_IN_URL = re.compile(r"hr-[a-z2-7]{12}-|(^|&)(api[_-]?key|key|token|access_token)=")
_NOT_FOUND = "Unknown path. This gateway serves /v1/chat/completions, /v1/completions and /v1/models."


class Route(NamedTuple):
    """One path: its method, the operation it is logged as, who answers."""

    method: str
    operation: str
    answer: Callable[[Principal, Request, Record], Awaitable[Response]]


class OpenAIFront:
    """The handler of the data listener."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._created = int(time.time())
        self._ids = map(f"req_{secrets.token_hex(6)}{{:08x}}".format, itertools.count(1))
        self._routes = {
            b"/v1/chat/completions": Route("POST", "chat", partial(self._generate, wire.decode_chat)),
            b"/v1/completions": Route("POST", "text_completion", partial(self._generate, wire.decode_completion)),
            b"/v1/models": Route("GET", "models", self._models),
        }
        self._model_route = Route("GET", "models", self._model)

    async def __call__(self, http: Request) -> Response:
        """Answer one request; whatever happens it is told of once."""
        core = self._core
        route = self._find(http)
        record = Record(self._request_id(http), route.operation if route else "unknown", http.peer, core.clock())
        try:
            principal = self._authenticate(http, record)
            if route is None:
                raise CallerError(_NOT_FOUND, code="unknown_url")
            if http.method != route.method:
                raise CallerError(f"This path takes {route.method} only.", code="method_not_allowed")
            if principal.scope is not None:
                principal.scope.check_front(route.operation)
            return await route.answer(principal, http, record)
        except InferenceError as error:
            core.telemetry.end(record, error, errors.status_of(error), core.clock())
            return errors.openai_response(error, self._headers(record))
        except asyncio.CancelledError:
            core.telemetry.end(record, ClientGone("the client closed the connection"), 499, core.clock())
            raise
        except Exception:
            bug = errors.internal_error()
            core.telemetry.end(record, bug, errors.status_of(bug), core.clock())
            raise

    # ── what each path does ───────────────────────────────────────────────────────────────────────────

    async def _generate(
        self, decode: Callable[[bytes], GenerateRequest], principal: Principal, http: Request, record: Record
    ) -> Response:
        _require_json(http)
        body = await http.read()
        request = decode(body)
        request.request_id, request.size = record.request_id, len(body)
        snapshot = self._core.snapshot
        if header.may_ask(snapshot, principal) and header.NAME in http.headers:
            record.explanation = header.told(snapshot, principal, decode(body), http.headers, self._core.wall())
        answer = await self._core.handle(principal, request, http.headers, record)
        headers = [("content-type", answer.content_type), *self._headers(record), *answer.headers]
        if answer.body is not None:
            return Response(answer.status, headers, answer.body)
        return Response(answer.status, [*headers, ("cache-control", "no-cache")], StreamBody(answer))

    async def _models(self, principal: Principal, http: Request, record: Record) -> Response:
        names = [(name, self._created) for model in self._visible(principal) for name, _, _ in rules.names(model)]
        return self._json(wire.encode_models(names), record)

    async def _model(self, principal: Principal, http: Request, record: Record) -> Response:
        name = http.path.removeprefix("/v1/models/")
        known = self._core.snapshot.catalogue.find(name)
        if known is None or not self._may_see(principal, known.name or name):
            raise NotFound(f"The model `{name[:128]}` does not exist or you may not use it.", param="model")
        return self._json(wire.encode_model(name, self._created), record)

    # ── what they share ───────────────────────────────────────────────────────────────────────────────

    def _find(self, http: Request) -> Route | None:
        route = self._routes.get(http.target)
        if route is None and http.target.startswith(b"/v1/models/"):
            return self._model_route
        return route

    def _request_id(self, http: Request) -> str:
        """The client's own, where it is harmless, so that its logs and ours can be joined."""
        given = http.headers.get("x-request-id")
        return given if given is not None and _REQUEST_ID.fullmatch(given) else next(self._ids)

    def _authenticate(self, http: Request, record: Record) -> Principal:
        if http.query and _KEY_IN_URL.search(http.query):
            raise CallerError(
                "A key must not be in the URL, where it is logged. Send it as `Authorization: Bearer KEY`, "
                "and revoke the one you sent.",
                code="key_in_url",
            )
        token = bearer(http.headers.get("authorization"), http.headers.get("x-api-key"))
        certificate = http.peer_certificate if token is None else None
        principal = self._core.snapshot.credentials.authenticate(token, certificate, time.time())
        record.tenant, record.key, record.roles = principal.tenant, principal.key_id, principal.roles
        return principal

    def _visible(self, principal: Principal) -> list[ModelConfig]:
        models = self._core.snapshot.config.models
        return [m for m in models if not is_glob(m.name) and self._may_see(principal, m.name)]

    def _may_see(self, principal: Principal, model: str) -> bool:
        allowed, scope = self._core.snapshot.allowed[principal.tenant], principal.scope
        return allowed.allows(model) and (scope is None or scope.allows_model(model))

    def _json(self, body: bytes, record: Record) -> Response:
        self._core.telemetry.end(record, None, 200, self._core.clock())
        return Response(200, [("content-type", "application/json"), *self._headers(record)], body)

    def _headers(self, record: Record) -> list[tuple[str, str]]:
        """Request id, who served it, the gateway's own share of the time, and what is left of the limits."""
        headers = [("x-request-id", record.request_id)]
        now = self._core.clock()
        if record.endpoint:
            headers.append(("x-headrace-model", record.model))
            headers.append(("x-headrace-endpoint", record.endpoint))
            headers.append(("x-headrace-overhead-ms", f"{record.overhead * 1000:.2f}"))
            if record.queue_seconds:
                headers.append(("x-headrace-queue-ms", f"{record.queue_seconds * 1000:.2f}"))
        if record.arm is not None:  # kept answers and failures are its own too
            headers.append(("x-headrace-arm", record.arm))
        if record.explanation:
            headers.append((header.NAME, record.explanation))
        allowances = record.allowances or self._core.ledger.shown(record.tenant, now)
        headers += rate_limits.headers(allowances, now)
        return headers


class StreamBody:
    """An answer's chunks. A break after the first chunk is said in the stream, and then it ends: there is
    no `[DONE]`, for it was not done, and no finish_reason that no model gave."""

    __slots__ = ("_answer", "_broken")

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._broken = False

    def __aiter__(self) -> "StreamBody":
        return self

    async def __anext__(self) -> bytes:
        if self._broken:
            raise StopAsyncIteration
        try:
            return await self._answer.__anext__()
        except InferenceError as error:
            self._broken = True
            return sse.encode(errors.openai_body(error))

    async def aclose(self) -> None:
        await self._answer.aclose()


def _require_json(http: Request) -> None:
    content_type = http.headers.get("content-type")
    if content_type is not None and content_type.partition(";")[0].strip().lower() != "application/json":
        raise CallerError("Send the body as `Content-Type: application/json`.", code="unsupported_media_type")
