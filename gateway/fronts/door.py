"""The base of all HTTP fronts: credentials, request ids, response headers and errors."""

import asyncio
import itertools
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sized
from functools import partial
from typing import Any

from adapters.assembly import LARGE
from adapters.cut import survived
from adapters.errors import UPGRADE_REQUIRED, CallerError, InferenceError
from adapters.http1.message import Request, Response
from adapters.http1.relay import RELAY
from adapters.ignored_fields import IGNORED
from config.schema.config import ClientModelConfig
from config.schema.text import is_glob
from gateway.auth.keys import Principal, bearer
from gateway.fronts import rate_limits
from gateway.fronts.comments import EventOf, commented
from gateway.fronts.forwarded import client_address
from gateway.fronts.rights import client_right
from gateway.request.core import Core
from gateway.request.path_parts import unknown_model
from gateway.telemetry import Record
from policies.routing.rules import ResolvedModel

EXPLAIN = "x-headrace-explain"
"""The request header that requests an explanation of the route, and the response header with it."""
GUARDS = "x-headrace-guards"
"""The response header with the names of guards that warn."""
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_KEY_IN_URL = re.compile(r"hr-[a-z2-7]{12}-|(^|&)(api[_-]?key|key|token|access_token)=")
_PROBES = frozenset({b"/", b"/api/hello"})
"""Paths that health checks and starting clients, such as Claude Code, request without a key: unknown, not forbidden."""

Fields = list[tuple[str, str]]
UNBUFFERED = ("x-accel-buffering", "no")
STREAMED = (("cache-control", "no-cache"), UNBUFFERED)
"""Headers of a stream: they prevent caching, and buffering by nginx."""
Shape = Callable[[InferenceError, Fields], Response]
"""Encodes an error in the shape of a front."""
HeadersOf = Callable[[Record], Fields]
"""The headers of a front's responses."""


Answering = Callable[[Principal, Request, Record], Awaitable[Response]]


class DoorPath:
    """One path with its right: its methods, its operation in the access log, and its handler."""

    __slots__ = ("answer", "counts", "methods", "operation", "path")

    def __init__(self, path: str, answer: Answering) -> None:
        """`path` is the row of the route in `rights.CLIENT`."""
        self.path = path
        self.methods, self.operation, self.counts = client_right(path)
        self.answer = answer


Authenticating = Callable[[Request, Record, Callable[[], DoorPath]], Awaitable[Principal]]
"""Finds the principal of a request whose credential depends on its body. The last argument returns the route, and
raises `CallerError` for a request that has none: before its body is read."""


class Door:
    """Shared by all fronts of the HTTP listener."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self._ids = map(f"req_{secrets.token_hex(6)}{{:08x}}".format, itertools.count(1))

    def serve(
        self,
        http: Request,
        route: DoorPath | None,
        unknown: str,
        refusal: Shape,
        headers_of: HeadersOf | None = None,
        event_of: EventOf | None = None,
        authenticating: Authenticating | None = None,
    ) -> Awaitable[Response]:
        """Answer one request, and report its end exactly once. `unknown` is the message for a path without a route.

        `event_of` is for a front with event streams, which may begin with comments; `authenticating` for one whose
        clients sign their requests.
        """
        record = self.record(http.headers, route.operation if route else "unknown", http.peer)
        answering = self._answer(http, route, unknown, refusal, headers_of or self.headers, record, authenticating)
        patience = self.core.snapshot.config.http.stream_comments
        if patience is None or event_of is None:
            return answering

        def fields() -> Fields | None:
            """The headers of a stream that begins before the answer."""
            if not record.stream:
                return None
            return [("content-type", "text/event-stream"), *(headers_of or self.headers)(record), *STREAMED]

        return commented(answering, patience, fields, event_of)

    async def _answer(
        self,
        http: Request,
        route: DoorPath | None,
        unknown: str,
        refusal: Shape,
        headers_of: HeadersOf,
        record: Record,
        authenticating: Authenticating | None = None,
    ) -> Response:
        core = self.core
        try:
            if b"upgrade" in http.headers.raw and "websocket" in (http.headers.get("upgrade") or "").lower():
                raise CallerError("No path takes WebSockets: send the request over HTTP.", code=UPGRADE_REQUIRED)
            if http.target in _PROBES:
                raise CallerError(unknown, code="unknown_url")
            if authenticating is None:
                principal = self._authenticate(http, record)
            else:
                principal = await authenticating(http, record, partial(_served, route, http.method, unknown))
            route = _served(route, http.method, unknown)
            if principal.scope is not None:
                principal.scope.check_front(route.operation)
            http.charge_to(core.memory.of(principal.tenant))
            if route.counts == "state":
                return await self._counted(route, principal, http, record)
            if http.pending or http.encoded:
                record.early = core.ledger.reserve_early(
                    principal.tenant, principal.subject, principal.team, core.clock()
                )
            return await route.answer(principal, http, record)
        except InferenceError as error:
            response = refusal(error, headers_of(record))
            core.end(record, error, response.status)
            return response
        except asyncio.CancelledError as error:
            if (cut := survived()) is None:
                core.end(record, error)
                raise
            response = refusal(cut, headers_of(record))
            core.end(record, cut, response.status)
            return response
        except Exception as error:
            core.end(record, error)
            raise

    async def _counted(self, route: DoorPath, principal: Principal, http: Request, record: Record) -> Response:
        """Answer a request that reaches no model: it and its bytes count against the limits of the credential."""
        core, size = self.core, 0
        tenant, key, team = principal.tenant, principal.subject, principal.team
        reservation = await core.ledger.reserve_state(tenant, key, team, http.length, core.clock())
        record.shadowed = reservation.shadowed
        try:
            response = await route.answer(principal, http, record)
            size = len(response.body) if isinstance(response.body, Sized) else 0
        finally:
            reservation.settle((1, 0, 0, http.size + size, 0), None, core.clock())
            record.draws += reservation.draws
        return response

    def record(self, headers: Mapping[str, str], operation: str, peer: str) -> Record:
        """The record of a new request. Its id is the client's own id if that is harmless, so that the logs of both
        sides can be joined."""
        given = headers.get("x-request-id")
        id_ = given if given is not None and _REQUEST_ID.fullmatch(given) else next(self._ids)
        if trusted := self.core.snapshot.config.http.trusted_proxies:
            peer = client_address(peer, headers.get("x-forwarded-for"), trusted)
        record = Record(id_, operation, peer, self.core.clock())
        if (relay := RELAY.get()) is not None:
            record.relay = relay
            RELAY.set(None)  # only the call of this request has it, no task behind the request
        if (tracer := self.core.telemetry.tracer) is not None:
            tracer.begin(record, headers)
        return record

    async def signed(self, http: Request, record: Record, served: Callable[[], DoorPath]) -> Principal:
        """The principal of a request that may be signed as for AWS. Raises `CredentialError`.

        No tenant pays for a body before its signature is verified: the id of a key is no secret.
        """
        from gateway.auth.aws import RequestSignature, is_signed

        if not is_signed(http.headers.get("authorization")):
            return self._authenticate(http, record)
        core, now = self.core, time.time()
        signature, keys = RequestSignature.of(http, now), core.snapshot.credentials.keys
        served()
        http.charge_to(core.memory.claimed_by(signature.key_id))
        body = await http.read_encoded() if keys.holder(signature.key_id, now) is not None else b""
        check = partial(keys.signer, signature.key_id, partial(signature.fits, http, body), now)
        principal = check() if len(body) < LARGE else await asyncio.to_thread(check)  # a large body takes long to hash
        record.hold(principal)
        return principal

    def _authenticate(self, http: Request, record: Record) -> Principal:
        if http.query and _KEY_IN_URL.search(http.query):
            raise CallerError(
                "A key must not be in the URL, where it is logged. Send it as `Authorization: Bearer KEY`, "
                "and revoke the key that you sent.",
                code="key_in_url",
            )
        headers = http.headers
        token = bearer(headers.get("authorization"))
        if token is None:  # `api-key` is the header of Azure's clients, `x-goog-api-key` of Google's
            given = headers.get("x-api-key") or headers.get("api-key") or headers.get("x-goog-api-key")
            token = bearer(None, given)
        return self.principal(token, http.peer_certificate if token is None else None, record)

    def principal(self, token: str | None, certificate: Mapping[str, Any] | None, record: Record) -> Principal:
        """The holder of the credential. Raises `CredentialError`."""
        principal = self.core.snapshot.credentials.authenticate(token, certificate, time.time())
        record.hold(principal)
        return principal

    # ── models ────────────────────────────────────────────────────────────────────────────────────────

    def visible(self, principal: Principal) -> list[ClientModelConfig]:
        """The models that a client may list. A family has the names that the configuration lists."""
        models = self.core.snapshot.config.models
        own = {model.name for model in models}
        named = [
            model if name == model.name else model.model_copy(update={"name": name})
            for model in models
            for name in (model.listed if is_glob(model.name) else (model.name,))
            if name == model.name or name not in own
        ]
        return [model for model in named if self._may_see(principal, model.name)]

    def model_of(self, principal: Principal, name: str) -> ResolvedModel:
        """The model with a name. Raises `NotFound` for an unknown name, and for a model that the client may not use."""
        model = self.core.snapshot.catalogue.find(name)
        if model is None:
            raise unknown_model(name, "model_unknown")
        if not self.core.snapshot.models_of(principal.tenant).allows(model.name or name):
            raise unknown_model(name, "model_not_allowed")
        if not (principal.scope is None or principal.scope.allows_model(model.name or name)):
            raise unknown_model(name, "model_out_of_scope")
        return model

    def _may_see(self, principal: Principal, model: str) -> bool:
        allowed, scope = self.core.snapshot.models_of(principal.tenant), principal.scope
        return allowed.allows(model) and (scope is None or scope.allows_model(model))

    # ── answers ───────────────────────────────────────────────────────────────────────────────────────

    def respond(self, record: Record, body: bytes, content_type: str = "application/json") -> Response:
        """End the exchange with a response of the gateway's own."""
        self.core.end(record)
        return Response(200, [("content-type", content_type), *self.headers(record)], body)

    def headers(self, record: Record) -> Fields:
        """The headers of every response. They report the rest of a budget, but no price."""
        now = self.core.clock()
        headers = [("x-request-id", record.request_id)]
        if record.endpoint:
            headers.append(("x-headrace-model", record.model))
            headers.append(("x-headrace-endpoint", record.endpoint))
            headers.append(("x-headrace-overhead-ms", f"{record.overhead * 1000:.2f}"))
            if record.trace.queue_seconds:
                headers.append(("x-headrace-queue-ms", f"{record.trace.queue_seconds * 1000:.2f}"))
        if record.arm is not None:  # stored answers and failures belong to an arm too
            headers.append(("x-headrace-arm", record.arm))
            if record.feedback_id:
                headers.append(("x-headrace-feedback-id", record.feedback_id))
        if record.ignored:
            headers.append((IGNORED, ", ".join(record.ignored)))
        if record.guards and (names := _warning(record)):
            headers.append((GUARDS, ", ".join(names)))
        if record.explanation:
            headers.append((EXPLAIN, record.explanation))
        if allowances := record.allowances or self.core.ledger.shown(record.tenant, now):
            headers += rate_limits.headers(allowances, now)
        return headers


def _warning(record: Record) -> dict[str, None]:
    """The names of the guards that have found a text and only warn."""
    verdicts = record.guards or {}
    return {name: None for name, action, mode, _ in verdicts if action == "warn" and mode == "enforce"}


def _served(route: DoorPath | None, method: str, unknown: str) -> DoorPath:
    """The route of a request. Raises `CallerError` without one, and for a method that it does not take."""
    if route is None:
        raise CallerError(unknown, code="unknown_url")
    if method not in route.methods and not (method == "HEAD" and "GET" in route.methods):
        raise CallerError(f"This path takes {' or '.join(route.methods)} only.", code="method_not_allowed")
    return route
