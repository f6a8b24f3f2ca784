"""The explanation of a request as a response header, for callers that may request it."""

import json
from collections.abc import Awaitable, Callable, Mapping

from adapters.requests import ModelRequest
from gateway.auth.keys import USER, Principal
from gateway.core import Core
from gateway.explain.why import Policy
from gateway.snapshot import Snapshot
from gateway.telemetry import Record
from policies.routing.explain import Explanation

NAME = "x-headrace-explain"
"""The request header that requests an explanation, and the response header with the explanation."""
MAX_ROUTES = 16
MAX_SENT = 1024
"""Maximum bytes of the header, as clients and proxies limit headers too."""


Read = Callable[[], Awaitable[ModelRequest]]


async def explain(core: Core, principal: Principal, headers: Mapping[str, str], record: Record, read: Read) -> None:
    """Record the explanation of a request's route, if the client may receive it. `read` decodes the request again."""
    if NAME in headers and may_ask(core.snapshot, principal):
        record.explanation = explanation(core.snapshot, principal, await read(), headers, core.wall())


def may_ask(snapshot: Snapshot, principal: Principal) -> bool:
    """Whether a client may receive explanations: its tenant is configured for them, or it is an operator."""
    if principal.tenant in snapshot.explaining:
        return True
    return principal.roles is not USER and principal.scope is None and "operator" in principal.roles


def explanation(
    snapshot: Snapshot, principal: Principal, request: ModelRequest, headers: Mapping[str, str], now_utc: float
) -> str:
    """The value of the header. This changes the request: do not use it afterwards."""
    policy = Policy(snapshot.config, snapshot.catalogue, snapshot.allowed, lambda _: None)
    return in_header(policy.explain(principal, request, headers, now_utc))


def in_header(found: Explanation) -> str:
    """Encode an explanation as one line of JSON in ASCII: route and pools, and for each earlier route its first
    condition that the request does not meet."""
    last = found.routes[-1] if found.routes else None
    missed = [
        {"route": route.route, "requires": f"{check.field} {check.wanted}", "has": check.seen}
        for route in found.routes
        for check in [check for check in route.checks if not check.holds][:1]
    ]
    all_of_it = {
        "model": found.model,
        "route": last.route if last and last.matches else None,
        "line": last.line if last and last.matches else None,
        "arm": found.to.arm if found.to else None,
        "pools": found.to.pools if found.to else None,
        "arms": {side.arm: round(side.share, 4) for side in found.arms} if not found.to else None,
        "sent": found.sent if len(json.dumps(found.sent)) <= MAX_SENT else list(found.sent)[:MAX_ROUTES],
        "refused": found.because,
        "not": missed[:MAX_ROUTES],
    }
    said = {name: value for name, value in all_of_it.items() if value not in (None, {}, [])}
    return json.dumps(said, separators=(",", ":"))
