"""Causes of requests that failed at an upstream, and of answers that broke: 500, 502, 504, 499."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gateway.admin.diagnosis.evidence import Evidence
from gateway.admin.diagnosis.finding import Finding, Row, counted, example, grouped, moment, named, plain
from gateway.admin.diagnosis.refusals import endpoints_of
from gateway.features.journal.lines import MICROS

_CHANGES = ("config.", "pool.", "endpoint.", "rollout.", "experiment.", "gateway.", "model.")
_SOON = 600.0
"""Seconds between a change and the first failure in which the change may be the cause."""
_FEWEST = 5

_SENTENCES: Mapping[str, str] = {
    "upstream_unreachable": "The servers of the pool {pool} cannot be reached, or break the connection.",
    "upstream_timeout": "The servers of the pool {pool} do not answer in time.",
    "upstream_error": "The servers of the pool {pool} answer with errors.",
    "upstream_credential": "The servers of the pool {pool} refuse the credential that the gateway sends.",
    "upstream_bad_response": "The answers of the pool {pool} cannot be read.",
    "upstream_path_not_found": "The servers of the pool {pool} have no such path.",
    "model_failed": "The model behind the pool {pool} fails on these requests.",
    "out_of_memory": "The model behind the pool {pool} runs out of memory on these requests.",
    "deadline_exceeded": "Requests to {model} reach their deadline.",
    "client_closed_request": "Clients leave before their answer is complete.",
    "context_length_exceeded": "Prompts are longer than the context of the model {model}.",
    "request_too_large": "Clients send bodies above the limit.",
    "content_filter": "A guard blocks the content.",
}
_STEPS: Mapping[str, tuple[str, ...]] = {
    "upstream_unreachable": (
        "try a server from this machine: `curl -i ADDRESS`",
        "compare name, port and TLS of `pools[].endpoints` with the server",
    ),
    "upstream_timeout": (
        "look at the load of the servers",
        "compare `timeout.first_byte` of the route with the time that a long prompt takes",
    ),
    "upstream_error": ("look at the servers' own log at these times", "drain the endpoint, or roll its change back"),
    "upstream_credential": ("renew the key of the pool in its secret", "try the key with the provider's own client"),
    "upstream_bad_response": (
        "compare `protocol` of the pool with the server: `headrace probe ADDRESS`",
        "look for a proxy in between that answers with a page of its own",
    ),
    "upstream_path_not_found": ("compare the path in `pools[].endpoints` and `protocol.root` with the server's API",),
    "model_failed": ("send one of the requests to the server directly", "look at the model's own log"),
    "out_of_memory": ("bound the size of requests, or the number of them at once (`queue.max_in_flight`)",),
    "deadline_exceeded": (
        "see where the time goes: `headrace why slow`",
        "raise `timeout.total`, or bound `max_tokens`",
    ),
    "client_closed_request": ("compare the client's own timeout with the time of an answer: `headrace why slow`",),
    "context_length_exceeded": ("shorten the history in the client, or route long prompts to another model",),
    "request_too_large": ("raise `http.max_body` if bodies of this size are intended",),
    "content_filter": ("see which guard: `headrace requests show ID`",),
}
_OWN = "The requests fail with {code}."


def failures(evidence: Evidence) -> Iterator[Finding]:
    """One finding for each code and pool, from the newest failed requests that have no reason of a refusal."""
    failed = [row for row in evidence.failed if "reason" not in row["detail"]]
    for (code, pool, model), rows in grouped(failed, _place).items():
        sentence = _SENTENCES.get(code, _OWN)
        yield Finding(
            code or "error",
            sentence.format(pool=f"`{plain(pool)}`", model=f"`{plain(model)}`", code=f"`{plain(code or 'an error')}`"),
            (
                counted(rows),
                *_of_endpoints(evidence, rows),
                *endpoints_of(evidence, pool),
                *change_before(evidence, rows),
            ),
            (*_STEPS.get(code, ()), *example(rows)),
            len(rows),
        )


def _place(row: Row) -> tuple[str, str, str]:
    """The code, the pool and the model of a failure; a failure without a pool is the model's."""
    code, pool = row["code"] or row["error"], row["pool"]
    return (code, "", row["model"]) if not pool or "{model}" in _SENTENCES.get(code, "") else (code, pool, "")


def _of_endpoints(evidence: Evidence, rows: Sequence[Row]) -> tuple[str, ...]:
    """The endpoints that failed, and whether others of the pool answer meanwhile."""
    lines = [*named(rows, "status", "statuses"), *named(rows, "endpoint", "endpoints"), *named(rows, "model", "models")]
    pool, failing = rows[0]["pool"], {row["endpoint"] for row in rows if row["endpoint"]}
    if pool and len(failing) == 1:
        well = [
            row for row in evidence.rows if row["pool"] == pool and not row["error"] and row["endpoint"] not in failing
        ]
        if len(well) >= _FEWEST:
            lines.append(f"other endpoints of the pool answered {len(well)} requests meanwhile: only this one fails")
    return tuple(lines)


def change_before(evidence: Evidence, rows: Sequence[Row]) -> tuple[str, ...]:
    """The last change shortly before the first failure, if the failures of its time are all there."""
    first = min(row["at"] for row in rows) / MICROS
    for act in evidence.acts:
        if first - _SOON <= act["at"] <= first and act["action"].startswith(_CHANGES):
            return (f"before the first failure: {described(act)}",)
    return ()


def described(act: Mapping[str, Any]) -> str:
    """An act in one line."""
    time, outcome = moment(int(act["at"] * MICROS)), "" if act["outcome"] == "done" else f" ({plain(act['outcome'])})"
    return f"{plain(act['action'])} {plain(act['target'])} by {plain(act['actor'])} at {time}{outcome}"
