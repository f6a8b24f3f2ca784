"""Defects of the gateway and of its neighbours that its state and its metrics show now."""

import time
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from gateway.admin.diagnosis.evidence import Evidence, Samples
from gateway.admin.diagnosis.failures import described
from gateway.admin.diagnosis.finding import Finding, plain

_DAY = 86400.0
_STOPPED = {"held": "is held, and waits for an operator", "back": "sends all requests to the old arm again"}
"""Statuses of a rollout that has stopped before its end."""


def conditions(evidence: Evidence) -> Iterator[Finding]:
    """Every defect that is there now, whether or not requests have failed by it."""
    if not evidence.question.of_state:
        return
    for find in (_configuration, _key_database, _redis, _pools, _drains, _certificates, _issuers, _workers, _rollouts):
        yield from find(evidence)
    for loss in LOSSES:
        yield from _losses(evidence.samples, loss)
    for gap in evidence.gaps:
        sentence = "Evidence cannot be read, because the database does not answer."
        yield Finding("evidence_unreadable", sentence, (plain(gap),), ("look at the state database",), severe=True)
    if not evidence.stored:
        sentence = "The past cannot be examined, because the file has no section `requests`."
        steps = ("add `requests: {}` to the file: from then on each refused or failed request has its reason",)
        yield Finding("requests_not_stored", sentence, (), steps)


def _configuration(evidence: Evidence) -> Iterator[Finding]:
    status = evidence.state.get("configuration", {})
    if error := status.get("last_error"):
        lines = tuple(plain(line) for line in str(error).splitlines()[:5])
        steps = (f"correct the file, and try it first: `headrace check --config {plain(status.get('file', 'FILE'))}`",)
        sentence = "The last change of the file was refused, so the gateway goes on with the one before."
        yield Finding("configuration_refused", sentence, lines, steps, severe=True)


def _key_database(evidence: Evidence) -> Iterator[Finding]:
    if not evidence.state.get("key_database", {}).get("available", True):
        sentence = "The state database does not answer: keys and teams stay as they were, and changes wait."
        steps = ("look at the database, and at the network to it", "see *When a part fails* in docs/failures.md")
        yield Finding("state_database_unavailable", sentence, (), steps, severe=True)


def _redis(evidence: Evidence) -> Iterator[Finding]:
    redis = evidence.state.get("redis")
    if redis and not redis["up"]:
        sentence = "Redis does not answer: limits that several gateways count together follow `on_redis_failure`."
        unsent = evidence.samples.total("headrace_redis_unsent")
        lines = (plain(redis["error"] or "no connection"), f"{unsent:.0f} counts wait to be sent")
        yield Finding("redis_unavailable", sentence, lines, ("look at Redis: `redis-cli -u URL ping`",), severe=True)


def _pools(evidence: Evidence) -> Iterator[Finding]:
    """Unhealthy endpoints, but for pools whose refusals are a cause already."""
    by_pool: dict[str, list[Mapping[str, object]]] = {}
    for each in evidence.state.get("endpoints", ()):
        by_pool.setdefault(each["pool"], []).append(each)
    refusing = _refusing(evidence)
    for pool, endpoints in by_pool.items():
        bad = [each for each in endpoints if each["health"] == "unhealthy"]
        if not bad or evidence.question.labels.get("pool", pool) != pool or pool in refusing:
            continue
        dead = len(bad) == len(endpoints)
        sentence = (
            f"{'Every endpoint' if dead else f'{len(bad)} of {len(endpoints)} endpoints'} of the pool `{plain(pool)}`"
        )
        lines = tuple(f"{plain(each['address'])}: {plain(each.get('probe_error') or 'unhealthy')}" for each in bad[:10])
        address = plain(bad[0]["address"])
        steps = (f"try it yourself: `curl -i {address}`", f"try its protocol: `headrace probe {address}`")
        yield Finding(
            "endpoints_unhealthy", f"{sentence} {'is' if dead or len(bad) == 1 else 'are'} unhealthy.", lines, steps
        )


def _refusing(evidence: Evidence) -> set[str]:
    """Pools whose refusals show their endpoints already."""
    reasons = [row["detail"].get("reason") for row in evidence.failed]
    return {str(each.get("pool")) for each in reasons if each and each["cause"] == "no_healthy_endpoint"}


def _drains(evidence: Evidence) -> Iterator[Finding]:
    drained = [each for each in evidence.state.get("endpoints", ()) if each.get("drained")]
    if drained:
        acts = [described(act) for act in evidence.acts if "drain" in act["action"]]
        names = ", ".join(plain(each["address"]) for each in drained[:5])
        sentence = f"Endpoints are drained and get no requests: {names}."
        steps = ("return one: `POST /admin/pools/POOL/endpoints/ENDPOINT/undrain`, or in the console, *Live*",)
        yield Finding("endpoints_drained", sentence, tuple(acts[:3]), steps)


def _certificates(evidence: Evidence) -> Iterator[Finding]:
    for labels, value in evidence.samples.of("headrace_certificate_expiry_timestamp_seconds"):
        left = value - time.time()
        if left < 14 * _DAY:
            where = plain(", ".join(labels.values()) or "a listener")
            sentence = (
                f"The certificate of {where} {'has expired' if left < 0 else f'expires in {left / _DAY:.1f} days'}."
            )
            steps = ("write the new certificate and its key to the files: the gateway loads the pair at once",)
            yield Finding("certificate_expires", sentence, (), steps, severe=left < _DAY)
    failed = evidence.samples.total("headrace_certificate_load_failures_total")
    if failed:
        sentence = "A changed certificate was not loaded, so the one before stays."
        steps = ("compare certificate and key: `openssl x509 -noout -pubkey`, `openssl pkey -pubout`",)
        yield Finding("certificate_refused", sentence, (f"{failed:.0f} times since the start",), steps)


def _issuers(evidence: Evidence) -> Iterator[Finding]:
    for each in evidence.state.get("issuers", ()):
        if not each.get("keys", 1):
            sentence = f"The keys of the issuer `{plain(each['issuer'])}` could not be fetched."
            steps = ("fetch its `jwks` address from this machine with `curl`",)
            yield Finding("issuer_without_keys", sentence, (plain(each.get("error", "")),), steps, severe=True)


def _workers(evidence: Evidence) -> Iterator[Finding]:
    restarts = evidence.samples.total("headrace_worker_restarts_total")
    gone = [labels.get("slot", "") for labels, up in evidence.samples.of("headrace_worker_up") if not up]
    if gone or restarts:
        lines = (f"{restarts:.0f} restarts since the start", f"workers that do not run: {', '.join(gone) or 'none'}")
        steps = ("look at the process log before each restart", "look for the kernel's memory killer: `dmesg`")
        sentence = "Worker processes have ended." if gone else "Worker processes have ended and were started again."
        yield Finding("workers_end", sentence, lines, steps, severe=bool(gone))


def _rollouts(evidence: Evidence) -> Iterator[Finding]:
    for labels, value in evidence.samples.of("headrace_rollout_status"):
        if value and labels["status"] in _STOPPED:
            name = plain(labels["rollout"])
            steps = (f"see the evidence: `headrace rollout show {name}`",)
            yield Finding("rollout_stopped", f"The rollout `{name}` {_STOPPED[labels['status']]}.", (), steps)


class Loss(NamedTuple):
    """A counter of what was lost or refused since the start of the gateway."""

    metric: str
    name: str
    sentence: str
    steps: tuple[str, ...]
    severe: bool = False


_DISK = ("look at the free space of the folder: `df -h`",)
LOSSES = (
    Loss("headrace_usage_lost_total", "usage_lost", "Usage could not be written and is lost.", _DISK, True),
    Loss("headrace_request_records_lost_total", "records_lost", "Records of requests are lost.", _DISK, True),
    Loss(
        "headrace_request_records_dropped_total",
        "records_dropped",
        "Records of requests are dropped: they waited too long, or a day is full.",
        ("look at the state database", "raise `requests.max` or `requests.max_waiting`"),
        True,
    ),
    Loss("headrace_records_lost_total", "recordings_lost", "Recorded traffic is lost.", _DISK),
    Loss(
        "headrace_writes_refused_total",
        "writes_refused",
        "The database refuses rows that the gateway writes.",
        ("look at the process log for the reason of the refusal",),
        True,
    ),
    Loss(
        "headrace_background_failures_total",
        "background_fails",
        "Work in the background fails and begins again.",
        ("look at the process log for the task",),
    ),
    Loss(
        "headrace_access_log_dropped_total",
        "access_log_dropped",
        "Lines of the access log are dropped, because its file or pipe does not take them.",
        _DISK,
    ),
    Loss(
        "headrace_held_bytes_refused_total",
        "memory_refused",
        "Requests were refused, because bodies and answers hold as many bytes as `http.max_held` permits.",
        ("raise `http.max_held` if the machine has the memory", "look for clients that read slowly"),
    ),
    Loss(
        "headrace_discovery_failures_total",
        "discovery_fails",
        "The endpoints of a pool cannot be discovered.",
        ("look at the address and the rights of `discover`",),
    ),
    Loss(
        "headrace_spans_rejected_total",
        "spans_rejected",
        "The collector of traces rejects spans.",
        ("look at the collector's own log",),
    ),
)
"""Every counter whose growth is a defect by itself."""


def _losses(samples: Samples, loss: Loss) -> Iterator[Finding]:
    series = [(labels, value) for labels, value in samples.of(loss.metric) if value]
    if series:
        lines = tuple(
            f"{value:.0f} since the start{' (' + ', '.join(map(plain, labels.values())) + ')' if labels else ''}"
            for labels, value in sorted(series, key=lambda each: -each[1])[:5]
        )
        yield Finding(loss.name, loss.sentence, lines, loss.steps, severe=loss.severe)
