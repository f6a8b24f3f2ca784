"""Expectations of a replay, such as `changed <= 1%`, `refused == 0` or `differing <= 2%`."""

import operator
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

DECIDED = ("changed", "pool", "arm", "refused", "admitted", "failed", "cost")
"""Counts of a replay of policies."""
SENT = ("failed", "status", "differing", "late")
"""Counts of a replay that sends requests."""
_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
_FORM = re.compile(r"\s*([a-z]+)\s*(<=|>=|==|!=|<|>)\s*(-?\d{1,12}(?:\.\d{1,9})?)\s*(%?)\s*")


class Counted(Protocol):
    """The report of a replay."""

    @property
    def counts(self) -> Mapping[str, int]: ...
    def share(self, kind: str) -> float | None:
        """The share of a count; None if nothing was counted."""


class Expectation(NamedTuple):
    """A comparison of a count of changed requests, or of their share of all requests."""

    written: str
    kind: str
    compare: str
    number: float
    is_share: bool

    @classmethod
    def parse(cls, written: str, kinds: tuple[str, ...] = DECIDED) -> "Expectation":
        """Raises `ValueError`."""
        match = _FORM.fullmatch(written)
        if match is None or match[1] not in kinds:
            example = f"such as `{kinds[0]} <= 1%`"
            raise ValueError(f"expected a comparison of {', '.join(kinds)} {example}, got {written!r}")
        if match[1] == "cost" and not match[4]:
            raise ValueError("`cost` is the relative change of all costs: compare it with a percentage")
        return cls(written.strip(), match[1], match[2], float(match[3]), bool(match[4]))

    def unmet(self, report: Counted) -> str:
        """The difference; empty if the expectation is met. Nothing counted meets no expectation."""
        share = report.share(self.kind)
        if share is None:
            return f"expected {self.written}, but there is no request to count"
        value = share * 100 if self.is_share else report.counts[self.kind]
        if _COMPARE[self.compare](value, self.number):
            return ""
        got = f"{value:.4g}%" if self.is_share else f"{value:,}"
        return f"expected {self.written}, got {got}"
