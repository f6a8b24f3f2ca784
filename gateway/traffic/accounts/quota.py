"""What one account may still send to one model, and its pause.

A bucket refills steadily up to its limit, as the limits of providers do. There is one for each quota that the provider
reports, and one for each configured limit. What the provider reports does not include requests that are on their way,
so these stay reserved until their answer begins, with the next report.
"""

from math import inf
from typing import NamedTuple

from adapters.requests import ModelRequest
from adapters.types import Usage
from adapters.wire.quota_headers import ReportedQuota
from config.schema.config import AccountLimitsConfig
from gateway.traffic.accounts.table import (
    BUCKETS,
    CAUSE,
    IDLE_SECONDS,
    REFUSALS,
    REST_UNTIL,
    UNITS,
    USED_AT,
    AccountTable,
)
from policies.limits.price import expected_output

LONGEST_REST = 3600.0
"""Longest seconds of a pause, whatever the provider requires: then one more request shows whether it still refuses."""
FIRST_REST, MOST_DOUBLED = 1.0, 5
"""A refusal without a time rests the model for a second, doubled by each further refusal in a row, up to 32 seconds."""
ACCOUNT_REST = 60.0
"""Seconds for which a model rests whose account has no credit, unless the provider requires another time."""
LONGEST_RESET = 86400.0
"""Longest seconds until a quota is whole again."""
PERIOD = 60.0
"""Seconds in which a quota refills whose reset the provider does not report."""
CAUSES = ("", "upstream_quota", "upstream_account", "upstream_overloaded")
"""The causes of pauses, by their positions in the table."""

_LIMIT, _LEFT, _AT, _RATE = range(4)
_OWN_REQUESTS, _OWN_TOKENS, _REQUESTS, _TOKENS, _PROMPT, _COMPLETION = range(6)
_OF_UNIT = {"requests": _REQUESTS, "tokens": _TOKENS, "prompt": _PROMPT, "completion": _COMPLETION}
_REPORTED = (_REQUESTS, _TOKENS, _PROMPT, _COMPLETION)
_ALL = range(6)


class Need(NamedTuple):
    """The amounts of a request."""

    requests: int = 1
    prompt: int = 0
    completion: int = 0

    @classmethod
    def of(cls, request: ModelRequest) -> "Need":
        """What a request may need: its prompt, and the most tokens that it asks for."""
        written = expected_output(request.max_tokens, request.n) if request.composes else 0
        return cls(1, request.prompt_tokens, written)

    def amounts(self) -> tuple[int, int, int, int, int, int]:
        """The amounts of each bucket."""
        tokens = self.prompt + self.completion
        return self.requests, tokens, self.requests, tokens, self.prompt, self.completion


ONE = Need()
"""A request whose length is unknown."""


class Quota:
    """The row of one model at one account."""

    __slots__ = ("_all", "_own", "_table", "_words", "row")

    def __init__(self, table: AccountTable, row: int) -> None:
        self.row = row
        self._table = table
        self._words = table.words(row)
        self._own, self._all = table.reserved(row)

    @property
    def key(self) -> float:
        """The number of the name whose row this is."""
        return self._words[0]

    def configure(self, limits: AccountLimitsConfig | None, now: float) -> None:
        """Apply the configured limits: a new one is full."""
        rates = (None, None) if limits is None else (limits.requests, limits.tokens)
        for bucket, rate in zip((_OWN_REQUESTS, _OWN_TOKENS), rates, strict=True):
            at, words = BUCKETS + 4 * bucket, self._words
            limit = 0.0 if rate is None else float(rate.amount)
            speed = 0.0 if rate is None else limit / rate.period
            if (words[at + _LIMIT], words[at + _RATE]) != (limit, speed):
                words[at + _LEFT], words[at + _AT] = limit, now
                words[at + _RATE], words[at + _LIMIT] = speed, limit

    # ── requests ──────────────────────────────────────────────────────────────────────────────────────

    def hold(self, need: Need, now: float) -> None:
        """Reserve what a request may need, until `release`."""
        self._words[USED_AT] = now
        for unit, amount in enumerate(need):
            self._own[unit] += amount
        self._spend(need, now)

    def release(self, need: Need) -> None:
        """The request has ended, or its answer has begun: the provider's own count includes it."""
        for unit, amount in enumerate(need):
            self._own[unit] = max(0.0, self._own[unit] - amount)

    def settle(self, need: Need, usage: Usage, now: float) -> None:
        """Count what an answered request has really used against the configured limits."""
        used = Need(0, usage.prompt_tokens - need.prompt, usage.completion_tokens - need.completion)
        self._spend(used, now)

    def _spend(self, need: Need, now: float) -> None:
        amounts = need.amounts()
        for bucket in (_OWN_REQUESTS, _OWN_TOKENS):
            at, words = BUCKETS + 4 * bucket, self._words
            if words[at + _LIMIT] and amounts[bucket]:
                with self._table.locked():
                    words[at + _LEFT], words[at + _AT] = self._left(bucket, now) - amounts[bucket], now

    # ── the provider's answers ────────────────────────────────────────────────────────────────────────

    def report(self, quota: ReportedQuota, now: float) -> None:
        """Take over what the provider reports."""
        at, words = BUCKETS + 4 * _OF_UNIT[quota.unit], self._words
        limit = quota.limit or max(words[at + _LIMIT], quota.remaining)
        if limit <= 0:
            return
        missing = limit - min(quota.remaining, limit)
        rate = words[at + _RATE] or limit / PERIOD
        if quota.reset and missing:
            rate = missing / min(quota.reset, LONGEST_RESET)
        words[at + _LEFT], words[at + _AT], words[at + _RATE] = limit - missing, now, rate
        words[at + _LIMIT] = limit

    def refused(self, cause: str, retry_after: float | None, now: float) -> None:
        """Rest for the time that the provider requires. The longest pause counts."""
        words = self._words
        words[USED_AT] = now
        if retry_after is None:
            doubled = min(int(words[REFUSALS]), MOST_DOUBLED)
            wait = self._lacks(ONE, now)
            retry_after = wait or (ACCOUNT_REST if cause == "upstream_account" else FIRST_REST * 2**doubled)
        words[REFUSALS] += 1
        words[CAUSE] = float(CAUSES.index(cause)) if cause in CAUSES else 0.0
        words[REST_UNTIL] = max(words[REST_UNTIL], now + min(retry_after, LONGEST_REST))

    def answered(self) -> None:
        """The provider accepts requests. A pause that began meanwhile goes on."""
        self._words[REFUSALS] = 0.0

    # ── what is left ──────────────────────────────────────────────────────────────────────────────────

    def cause(self, now: float) -> str:
        """Why it rests."""
        resting = self._words[REST_UNTIL] > now
        return (CAUSES[int(self._words[CAUSE])] if resting else "") or "upstream_quota"

    def wait(self, need: Need, now: float) -> float:
        """Seconds until such a request may be sent; 0 if it may now."""
        return max(0.0, self._words[REST_UNTIL] - now, self._lacks(need, now))

    def _lacks(self, need: Need, now: float) -> float:
        """Seconds until the buckets have enough. A full bucket suffices for any request."""
        longest, amounts = 0.0, need.amounts()
        for bucket in _ALL:
            at = BUCKETS + 4 * bucket
            if limit := self._words[at + _LIMIT]:
                short = min(amounts[bucket], limit) - self._free(bucket, now)
                if short > 0:
                    rate = self._words[at + _RATE]
                    longest = max(longest, min(short / rate if rate else inf, LONGEST_REST))
        return longest

    def share(self, now: float) -> float:
        """The share that is left of the quota of which least is left; 1 if none is known."""
        shares = [
            self._free(bucket, now) / limit for bucket in _ALL if (limit := self._words[BUCKETS + 4 * bucket + _LIMIT])
        ]
        return max(0.0, min(shares, default=1.0))

    def _left(self, bucket: int, now: float) -> float:
        at, words = BUCKETS + 4 * bucket, self._words
        return min(words[at + _LIMIT], words[at + _LEFT] + words[at + _RATE] * max(0.0, now - words[at + _AT]))

    def _free(self, bucket: int, now: float) -> float:
        """What is left beside the reservations. Those of configured limits are counted already."""
        left = self._left(bucket, now)
        return left - self._reserved().amounts()[bucket] if bucket in _REPORTED else left

    def _reserved(self) -> Need:
        held = self._all
        return Need(int(sum(held[0::UNITS])), int(sum(held[1::UNITS])), int(sum(held[2::UNITS])))

    def is_idle(self, now: float) -> bool:
        """Whether another model may have the row: nothing is reserved, used or required."""
        words = self._words
        return now - words[USED_AT] > IDLE_SECONDS and words[REST_UNTIL] <= now and not any(self._all)

    def describe(self, now: float) -> dict[str, object]:
        """For operators: the pause, and what is left of each limit."""
        names = {
            _OWN_REQUESTS: "limits.requests", _OWN_TOKENS: "limits.tokens", _REQUESTS: "requests", _TOKENS: "tokens",
            _PROMPT: "prompt_tokens", _COMPLETION: "completion_tokens",
        }  # fmt: skip
        rest = max(0.0, self._words[REST_UNTIL] - now)
        left = {
            name: {"limit": round(limit), "left": round(max(0.0, self._free(bucket, now)))}
            for bucket, name in names.items()
            if (limit := self._words[BUCKETS + 4 * bucket + _LIMIT])
        }
        cause = self.cause(now) if rest else None
        return {
            "rest_seconds": round(rest, 3),
            "cause": cause,
            "reserved": int(self._reserved().requests),
            "quotas": left,
        }
