"""The explanation of a request as a response header, for callers that may request it."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from adapters.requests import ModelRequest
from config.schema.identity import USER
from gateway.auth.keys import Principal
from gateway.fronts.door import EXPLAIN
from gateway.request.client_exchange import ClientExchange
from gateway.request.snapshot import Snapshot

if TYPE_CHECKING:
    from policies.routing.explain import Explanation  # needed for a request that is explained

MAX_ROUTES = 16
MAX_SENT = 1024
"""Maximum bytes of the header, as clients and proxies limit headers too."""


def explained(exchange: ClientExchange) -> None:
    """Record the explanation of a request's route, if the client requests it and may receive it. No observer follows
    the request further."""
    if EXPLAIN in exchange.headers and may_explain(exchange.snapshot, exchange.principal):
        exchange.record.explanation = explanation(
            exchange.snapshot, exchange.principal, exchange.request, exchange.headers, exchange.time
        )


def may_explain(snapshot: Snapshot, principal: Principal) -> bool:
    """Whether a client may receive explanations: its tenant is configured for them, or it is an operator."""
    if principal.tenant in snapshot.explaining:
        return True
    return principal.roles is not USER and principal.scope is None and "operator" in principal.roles


def explanation(
    snapshot: Snapshot, principal: Principal, request: ModelRequest, headers: Mapping[str, str], now_utc: float
) -> str:
    """The value of the header."""
    from gateway.features.explain.why import Policy  # few requests are explained

    policy = Policy(snapshot.config, snapshot.catalogue, snapshot.allowed, lambda _: None)
    return in_header(policy.explain(principal, request, headers, now_utc))


def in_header(explained: "Explanation") -> str:
    """Encode an explanation as one line of JSON in ASCII: route and pools, and for each earlier route its first
    condition that the request does not meet."""
    last = explained.routes[-1] if explained.routes else None
    missed = [
        {"route": route.route, "requires": f"{check.field} {check.required}", "has": check.seen}
        for route in explained.routes
        for check in [check for check in route.checks if not check.holds][:1]
    ]
    all_of_it = {
        "model": explained.model,
        "route": last.route if last and last.matches else None,
        "line": last.line if last and last.matches else None,
        "arm": explained.to.arm if explained.to else None,
        "pools": explained.to.pools if explained.to else None,
        "arms": {side.arm: round(side.share, 4) for side in explained.arms} if not explained.to else None,
        "steps": explained.steps[:MAX_ROUTES] or None,
        "sent": explained.sent if len(json.dumps(explained.sent)) <= MAX_SENT else list(explained.sent)[:MAX_ROUTES],
        "refused": explained.because,
        "not": missed[:MAX_ROUTES],
    }
    present = {name: value for name, value in all_of_it.items() if value not in (None, {}, [])}
    return json.dumps(present, separators=(",", ":"))
