"""Runs the tests of a policy and compares each result with its expectation."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from config.cases import MONDAY_NOON, CaseConfig, Cases, ExpectConfig
from config.schema.units import format_percent
from gateway.explain.asked import body_of
from gateway.explain.text import explained
from gateway.explain.why import Policy
from policies.routing.explain import Explanation

SHARE_TOLERANCE = 0.005


class Failure(NamedTuple):
    """A failed test: its position, the differences, and the explanation of the route."""

    where: str
    name: str
    wrong: tuple[str, ...]
    why: str

    def __str__(self) -> str:
        told = "".join(f"\n    {line}" for line in self.why.splitlines())
        return f"{self.where}: {self.name}: {'; '.join(self.wrong)}{told}"


def run(policy: Policy, cases: Cases) -> list[Failure]:
    """Run every test of a file and return the failures."""
    return [failure for line, case in cases.tests if (failure := _run(policy, f"{cases.file}:{line}", case))]


def _run(policy: Policy, where: str, case: CaseConfig) -> Failure | None:
    found = policy.asked(case.request, MONDAY_NOON.timestamp())
    wrong = tuple(_wrong(case, found))
    name = case.name or f"{case.request.tenant} requests {case.request.model}"
    return Failure(where, name, wrong, explained(found)) if wrong else None


def _wrong(case: CaseConfig, found: Explanation) -> Iterator[str]:
    expect = case.expect
    if found.refused is not None or expect.refused is not None:
        if found.refused != expect.refused:
            yield _differ("refused", expect.refused or "no", found.refused or "no")
        return
    last = found.routes[-1]
    if expect.route is not None and expect.route not in (last.route, last.name):
        yield _differ("route", expect.route, last.name or last.route)
    to = found.to
    if to is None and not expect.model_fields_set.isdisjoint({"pool", "pools", "arm"}):
        yield "the split selects an arm at random for each request: expect `arms`, or give the request the split's key"
    elif to is not None:
        for field, got in (("pool", to.pool), ("pools", to.pools), ("arm", to.arm)):
            wanted = getattr(expect, field)
            if wanted is not None and wanted != got:
                yield _differ(field, wanted, got)
    yield from _arms(expect, found)
    yield from _sent(case, found)


def _arms(expect: ExpectConfig, found: Explanation) -> Iterator[str]:
    if expect.arms is None:
        return
    got = {side.arm or "": side.share for side in found.arms}
    same = got.keys() == expect.arms.keys()
    if not same or any(abs(got[arm] - share) > SHARE_TOLERANCE for arm, share in expect.arms.items()):
        yield _differ("arms", _shares(expect.arms), _shares(got))


def _shares(arms: dict[str, float]) -> str:
    return ", ".join(f"{arm} {format_percent(round(share, 4))}" for arm, share in arms.items()) or "none"


def _sent(case: CaseConfig, found: Explanation) -> Iterator[str]:
    written = body_of(case.request)
    for field, wanted in (case.expect.sent or {}).items():
        got = found.sent[field] if field in found.sent else written.get(field)
        if got != wanted:
            yield _differ(f"sent.{field}", wanted, got)


def _differ(what: str, wanted: Any, got: Any) -> str:
    return f"expected {what} {_shown(wanted)}, got {_shown(got)}"


def _shown(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else "nothing" if value is None else str(value)
