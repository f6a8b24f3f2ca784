"""Expectations of a replay, such as `changed <= 1%` or `refused == 0`."""

import operator
import re
from collections.abc import Callable
from typing import NamedTuple

from gateway.replay.report import Report

KINDS = ("changed", "pool", "arm", "refused", "admitted", "failed", "cost")
_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
_FORM = re.compile(r"\s*([a-z]+)\s*(<=|>=|==|!=|<|>)\s*(-?\d{1,12}(?:\.\d{1,9})?)\s*(%?)\s*")


class Expectation(NamedTuple):
    """A comparison of a count of changed requests, or of their share of all requests."""

    written: str
    kind: str
    compare: str
    number: float
    is_share: bool

    @classmethod
    def parse(cls, written: str) -> "Expectation":
        """Raises `ValueError`."""
        match = _FORM.fullmatch(written)
        if match is None or match[1] not in KINDS:
            raise ValueError(f"expected a comparison of {', '.join(KINDS)} such as `changed <= 1%`, got {written!r}")
        if match[1] == "cost" and not match[4]:
            raise ValueError("`cost` is the relative change of all costs: compare it with a percentage")
        return cls(written.strip(), match[1], match[2], float(match[3]), bool(match[4]))

    def unmet(self, report: Report) -> str:
        """The difference; empty if the expectation is met."""
        value = report.share(self.kind) * 100 if self.is_share else report.counts[self.kind]
        if _COMPARE[self.compare](value, self.number):
            return ""
        got = f"{value:.4g}%" if self.is_share else f"{value:,}"
        return f"expected {self.written}, got {got}"
