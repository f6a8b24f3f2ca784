"""The replay of policies: each recorded request under a new configuration, in virtual time."""

from collections.abc import Callable, Iterable

from config.schema.config import Config
from gateway.auth.keys import Principal
from gateway.features.recording.entries import PolicyFrame
from gateway.features.recording.policy import RecordedPolicy
from gateway.features.replay.limits import LimitedRequest, SimulatedLimits
from gateway.features.replay.outcomes import Comparer, recorded_outcome
from gateway.features.replay.records import RecordedRequest
from gateway.features.replay.report import Report

EACH = 4096
"""Requests between two reports of the progress."""


def replay_policies(
    requests: Iterable[RecordedRequest], config: Config, advanced: Callable[[int], None] = lambda _: None
) -> Report:
    """Decide each request under a configuration. Raises `RecordError`.

    Requests whose limits changed are held until all are read, because limits depend on the order of time.
    """
    policy, report = RecordedPolicy(config), Report()
    comparers: dict[int, tuple[PolicyFrame, Comparer]] = {}
    principals: dict[int, tuple[object, Principal]] = {}
    limited: list[tuple[LimitedRequest, Comparer]] = []
    share = 1.0
    for number, (entry, holder, frame, _) in enumerate(requests):
        if not number % EACH:
            advanced(number)
        share = frame.share
        if (one := comparers.get(id(frame))) is None:
            one = comparers[id(frame)] = (frame, Comparer(frame, policy))
        if (cached := principals.get(id(holder))) is None:
            if len(principals) > EACH:
                principals.clear()
            cached = principals[id(holder)] = (holder, policy.principal(holder))
        comparer, principal = one[1], cached[1]
        decided = comparer.decision(entry, principal)
        model = decided.configured or entry.configured
        if not decided.refused and comparer.limits_changed(principal.tenant, model):
            limited.append((LimitedRequest(entry, principal, decided), comparer))
            continue
        before = recorded_outcome(entry)
        report.add(entry, before, comparer.outcome(entry, before, decided, None))
    _replay_limited(limited, policy, share, report)
    missing = sorted((policy.read_headers | policy.sticky_headers) - _recorded_headers(comparers.values()))
    if missing and report.requests:
        report.notes.append(f"Not in the record, so absent here: the headers {', '.join(missing)}.")
    return report


def _replay_limited(
    limited: list[tuple[LimitedRequest, Comparer]], policy: RecordedPolicy, share: float, report: Report
) -> None:
    limits = SimulatedLimits(policy, share)
    comparers = {id(request.entry): comparer for request, comparer in limited}
    for request, refused in limits.run([request for request, _ in limited]):
        entry = request.entry
        before = recorded_outcome(entry)
        report.add(entry, before, comparers[id(entry)].outcome(entry, before, request.decided, refused))
    if limited:
        report.notes.append(f"The limits of {len(limited):,} requests changed, and were simulated.")
    if limits.ignored:
        report.notes.append(f"Too small for a record of {share:.3%}, and ignored: {', '.join(limits.ignored)}.")


def _recorded_headers(comparers: Iterable[tuple[PolicyFrame, Comparer]]) -> frozenset[str]:
    """The headers that every policy recorded."""
    recorded = [frozenset(frame.headers) for frame, _ in comparers]
    return frozenset.intersection(*recorded) if recorded else frozenset()
