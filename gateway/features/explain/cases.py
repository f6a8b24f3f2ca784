"""Runs the tests of a policy and compares each result with its expectation."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from config.cases import MONDAY_NOON, CaseConfig, Cases, ExpectConfig
from config.schema.units import format_percent
from gateway.features.explain.text import explained
from gateway.features.explain.why import Policy, body_of
from policies.routing.explain import Explanation

SHARE_TOLERANCE = 0.005


class Failure(NamedTuple):
    """A failed test: its position, the differences, and the explanation of the route."""

    where: str
    name: str
    wrong: tuple[str, ...]
    why: str

    def __str__(self) -> str:
        explanation = "".join(f"\n    {line}" for line in self.why.splitlines())
        return f"{self.where}: {self.name}: {'; '.join(self.wrong)}{explanation}"


def run(policy: Policy, cases: Cases, tests: Iterable[tuple[int, CaseConfig]] | None = None) -> list[Failure]:
    """Run every test of a file and return the failures. `tests` yields the tests, and may show their progress."""
    tests = cases.tests if tests is None else tests
    return [failure for line, case in tests if (failure := _run(policy, f"{cases.file}:{line}", case))]


def _run(policy: Policy, where: str, case: CaseConfig) -> Failure | None:
    explanation = policy.explain_description(case.request, MONDAY_NOON.timestamp())
    wrong = tuple(_wrong(case, explanation))
    name = case.name or f"{case.request.tenant} requests {case.request.model}"
    return Failure(where, name, wrong, explained(explanation)) if wrong else None


def _wrong(case: CaseConfig, explanation: Explanation) -> Iterator[str]:
    expect = case.expect
    if explanation.refused is not None or expect.refused is not None:
        if explanation.refused != expect.refused:
            yield _differ("refused", expect.refused or "no", explanation.refused or "no")
        return
    yield from _guards(expect, explanation)
    if explanation.steps:
        if expect.model_fields_set - {"sent", "guards"}:
            yield "a pipeline has no route, pool or arm of its own: expect them of the models of its steps"
        return
    last = explanation.routes[-1]
    if expect.route is not None and expect.route not in (last.route, last.name):
        yield _differ("route", expect.route, last.name or last.route)
    to = explanation.to
    if to is None and not expect.model_fields_set.isdisjoint({"pool", "pools", "arm"}):
        yield "the split selects an arm at random for each request: expect `arms`, or give the request the split's key"
    elif to is not None:
        for field, got in (("pool", to.pool), ("pools", to.pools), ("arm", to.arm)):
            expected = getattr(expect, field)
            if expected is not None and expected != got:
                yield _differ(field, expected, got)
    yield from _arms(expect, explanation)
    yield from _sent(case, explanation)


def _guards(expect: ExpectConfig, explanation: Explanation) -> Iterator[str]:
    got = tuple(guard.partition(" ")[0] for guard in explanation.guards)
    if expect.guards is not None and got != expect.guards:
        yield _differ("guards", ", ".join(expect.guards) or "none", ", ".join(got) or "none")


def _arms(expect: ExpectConfig, explanation: Explanation) -> Iterator[str]:
    if expect.arms is None:
        return
    got = {side.arm or "": side.share for side in explanation.arms}
    same = got.keys() == expect.arms.keys()
    if not same or any(abs(got[arm] - share) > SHARE_TOLERANCE for arm, share in expect.arms.items()):
        yield _differ("arms", _shares(expect.arms), _shares(got))


def _shares(arms: dict[str, float]) -> str:
    return ", ".join(f"{arm} {format_percent(round(share, 4))}" for arm, share in arms.items()) or "none"


def _sent(case: CaseConfig, explanation: Explanation) -> Iterator[str]:
    written = body_of(case.request)
    for field, expected in (case.expect.sent or {}).items():
        got = explanation.sent[field] if field in explanation.sent else written.get(field)
        if got != expected:
            yield _differ(f"sent.{field}", expected, got)


def _differ(field: str, expected: Any, got: Any) -> str:
    return f"expected {field} {_shown(expected)}, got {_shown(got)}"


def _shown(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else "nothing" if value is None else str(value)
