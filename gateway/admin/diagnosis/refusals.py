"""Causes of requests that the gateway refused: 401, 403, 404, 429 and 503. Each has its reason in its record."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from adapters.reason import CAUSES, CREDENTIALS
from config.problem import closest
from gateway.admin.diagnosis.evidence import Evidence
from gateway.admin.diagnosis.finding import Finding, Row, counted, example, grouped, named, plain
from gateway.admin.diagnosis.remedies import STEPS

_SEVERAL = 2
"""Wrong secrets from which another pepper is likelier than as many typing errors."""
UNPROVEN: Mapping[str, str] = {
    "missing": "Clients send no credential.",
    "malformed": "Clients send a credential that is neither a key nor a token.",
    "unknown": "Clients send a key that this state database does not have.",
    "wrong_secret": "Clients send a key with a wrong secret.",
    **{cause: text for cause, text in CREDENTIALS.items() if cause.startswith("token_")},
}
"""Causes of 401 for which nothing proves who sent the request."""


class Alike(NamedTuple):
    """How requests with one cause are told apart, and the sentence about a group of them."""

    facts: tuple[str, ...]
    """The facts of a reason, or the fields of a request, that tell groups apart."""
    sentence: str
    """With these facts in braces."""


_KEY, _POOL = ("key",), ("pool",)
KINDS: Mapping[str, Alike] = {
    "revoked": Alike(_KEY, "A client still uses the key {key}, which was revoked."),
    "blocked": Alike(_KEY, "A client uses the key {key}, which is blocked."),
    "expired": Alike(_KEY, "A client still uses the key {key}, which has expired."),
    "rotated": Alike(("key", "rotated_to"), "A client still uses the key {key}, which the key {rotated_to} replaced."),
    "tenant_removed": Alike(("tenant",), "The configuration has no tenant {tenant} any more, and its clients go on."),
    "operation_out_of_scope": Alike(_KEY, "The scopes of the key {key} do not include what its client does."),
    "model_unknown": Alike(("model",), "The configuration has no model {model}."),
    "model_not_allowed": Alike(("tenant", "model"), "The tenant {tenant} may not use the model {model}."),
    "model_out_of_scope": Alike(("key", "model"), "The scopes of the key {key} do not include the model {model}."),
    "no_route": Alike(("tenant", "model"), "No route of the model {model} matches the requests."),
    "upstream_model": Alike(_POOL, "The servers of the pool {pool} have no model of this name."),
    "version_unknown": Alike(("model",), "The model {model} has no such version."),
    "limit": Alike(
        ("tenant", "unit", "limit", "per", "subject"),
        "The limit {limit} of {unit} per {per} is exhausted for {tenant}.",
    ),
    "no_healthy_endpoint": Alike(_POOL, "The pool {pool} has no healthy endpoint."),
    "model_not_ready": Alike(_POOL, "The servers of the pool {pool} have not loaded the model."),
    "breaker_open": Alike(_POOL, "The breakers of the pool {pool} are open, because its servers fail."),
    "pool_full": Alike(_POOL, "Every endpoint of the pool {pool} is full, and the pool has no queue."),
    "queue_full": Alike(_POOL, "Every endpoint of the pool {pool} is full, and its queue too."),
    "queue_late": Alike(_POOL, "The queue of the pool {pool} is so long that its requests would come too late."),
    "queue_timeout": Alike(_POOL, "Requests wait in the queue of the pool {pool} until its timeout."),
    "queue_shed": Alike(_POOL, "Requests of a higher priority take the places in the queue of the pool {pool}."),
    "upstream_resting": Alike(_POOL, "The servers of the pool {pool} have refused requests, and require a pause."),
    "upstream_quota": Alike(_POOL, "The provider behind the pool {pool} refuses more requests of your account."),
    "upstream_account": Alike(_POOL, "The provider's account behind the pool {pool} has no credit or quota left."),
    "upstream_overloaded": Alike(_POOL, "The servers of the pool {pool} report that they are overloaded."),
    "starting": Alike(_POOL, "The model of the pool {pool} is starting."),
    "start_failed": Alike(_POOL, "The model of the pool {pool} does not start."),
    "drained": Alike((), "The gateway was stopped, and its `drain` ended before these answers were complete."),
}
"""Causes with a sentence of their own. Any other cause has its description."""
_UNITS = {"spend": "money"}


def refusals(evidence: Evidence) -> Iterator[Finding]:
    """One finding for each cause and its facts, from the newest failed requests."""
    refused = [row for row in evidence.failed if _cause(row)]
    yield from _unproven(evidence)
    for cause, rows in grouped(refused, _cause).items():
        kind = KINDS.get(cause, Alike((), CAUSES.get(cause, f"The requests are refused: {cause}.")))
        for values, group in grouped(rows, _facts_of(kind.facts)).items():
            facts = dict(zip(kind.facts, values, strict=True))
            yield Finding(
                cause,
                kind.sentence.format_map({name: _text(name, value) for name, value in facts.items()}),
                (counted(group), *_evidence(evidence, cause, group)),
                (*_steps(evidence, cause, facts), *example(group)),
                len(group),
            )


def _cause(row: Row) -> str | None:
    reason = row["detail"].get("reason")
    return str(reason["cause"]) if isinstance(reason, dict) and "cause" in reason else None


def _facts_of(names: Sequence[str]) -> Callable[[Row], Hashable]:
    def facts(row: Row) -> Hashable:
        reason: Mapping[str, Any] = row["detail"]["reason"]
        return tuple(str(reason.get(name, row.get(name, ""))) for name in names)

    return facts


def _text(name: str, value: str) -> str:
    if not value:
        return "(unnamed)"
    return _UNITS.get(value, value) if name == "unit" else f"`{plain(value)}`"


def _unproven(evidence: Evidence) -> Iterator[Finding]:
    """Credentials that prove nobody have no records, so that strangers cannot fill the store: they are counted."""
    if not evidence.question.about(401) or evidence.question.query.labels:
        return
    counts = Counter[str]()
    for labels, value in evidence.samples.of("headrace_refusals_total"):
        if labels["cause"] in UNPROVEN:
            counts[labels["cause"]] += int(value)
    accepted = any(labels["tenant"] for labels, _ in evidence.samples.of("headrace_requests_total"))
    if counts["wrong_secret"] >= _SEVERAL and not accepted:
        sentence = "No key is accepted: the hashes of the keys were made with another pepper than this gateway's."
        lines = (f"{counts.pop('wrong_secret')} refusals by a wrong secret since the start, and no key was accepted",)
        yield Finding("another_pepper", sentence, lines, STEPS["another_pepper"], severe=True)
    for cause, count in counts.most_common():
        yield Finding(
            cause,
            UNPROVEN[cause],
            (f"{count} since the start of the gateway",),
            ("see from which addresses: `grep '\"status\":401' ACCESS_LOG | tail`", *STEPS.get(cause, ())),
        )


def _evidence(evidence: Evidence, cause: str, rows: Sequence[Row]) -> tuple[str, ...]:
    """Who was refused, and what the gateway shows beside it."""
    lines = [*named(rows, "tenant", "tenants"), *named(rows, "key", "keys"), *named(rows, "client", "clients")]
    reason = rows[0]["detail"]["reason"]
    if cause == "limit":
        lines.append(_limit(reason))
    if cause in ("upstream_model", "version_unknown"):
        lines += named(rows, "model", "models")
    if cause == "model_unknown":
        names = [model.name for model in evidence.config.models]
        if (near := closest(str(reason.get("model", "")), names)) is not None:
            lines.append(f"the most similar model of the configuration is `{near}`")
    if pool := reason.get("pool"):
        lines += endpoints_of(evidence, str(pool))
    return tuple(lines)


def _limit(reason: Mapping[str, Any]) -> str:
    """Whose limit it is, and when it has something left again."""
    shown = [f"{name} {plain(reason[name])}" for name in ("subject", "team", "models") if name in reason]
    if "reset" in reason:
        shown.append(f"it has something left at {plain(reason['reset'])}")
    return f"the limit {plain(reason.get('limit', ''))}: {', '.join(shown)}"


def endpoints_of(evidence: Evidence, pool: str) -> list[str]:
    """The state of each endpoint of a pool that is not simply healthy."""
    lines = []
    for each in evidence.state.get("endpoints", ()):
        if each["pool"] != pool:
            continue
        parts = [each["health"]] if each["health"] != "healthy" else []
        if each.get("probe_error"):
            parts.append(f"its probe failed: {plain(each['probe_error'])}")
        if each.get("drained"):
            parts.append("drained by an operator")
        if each.get("breaker", "closed") != "closed":
            parts.append(f"its breaker is {each['breaker']}")
        if parts:
            lines.append(f"endpoint {plain(each['address'])} is now {', '.join(parts)}")
    return lines


def _steps(evidence: Evidence, cause: str, facts: Mapping[str, str]) -> tuple[str, ...]:
    shown = {name: plain(value) or name.upper() for name, value in facts.items()}
    address = next(
        (
            each["address"]
            for each in evidence.state.get("endpoints", ())
            if each["pool"] == facts.get("pool") and each["health"] != "healthy"
        ),
        "ADDRESS",
    )
    return tuple(step.format_map(_Named({**shown, "address": plain(address)})) for step in STEPS.get(cause, ()))


class _Named(dict[str, str]):
    """Facts by name; one that is absent stands for itself."""

    def __missing__(self, name: str) -> str:
        return name.upper()
