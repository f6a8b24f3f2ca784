from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from adapters.errors import LimitExceeded
from gateway.limits.ledger import Reservation
from gateway.limits.subjects import Limit
from tests.gateway.limits.timed_ledger import TimedLedger, dollars, used

SCOPES: list[dict[str, Any]] = [
    {"requests": "50/min", "tokens": "1000/min", "concurrency": 6, "spend": "40 usd/day"},
    {"tokens": "600/min", "per": "key", "concurrency": 4},
    {"spend": "9 usd/hour", "per": "user"},
    {"requests": "20/min", "per": "model", "models": ["c*"]},
    {"tokens": "300/h", "enforce": "shadow"},
]


class LedgerMachine(RuleBasedStateMachine):
    """Whatever is reserved, refused, settled and reloaded in whatever order: the counts are those of what is held."""

    kind = "memory"

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        TimedLedger.kind = self.kind
        self.timed = TimedLedger(SCOPES)
        self.held: list[tuple[Reservation, int]] = []
        self.waits: list[float | None] = []

    @rule(
        tokens=st.integers(0, 1500),
        passed=st.floats(0, 30),
        usd=st.integers(0, 12),
        key=st.sampled_from(["k1", "k2"]),
        user=st.sampled_from([None, "ann", "bob"]),
        model=st.sampled_from(["chat", "vision"]),
    )
    def reserve(self, tokens: int, passed: float, usd: int, **subject: Any) -> None:
        self.now += passed
        self.timed.utc += passed
        before = self.remaining()
        try:
            reservation = self.timed.reserve(tokens, self.now, usd=usd, **subject)
        except LimitExceeded as refused:
            self.waits.append(refused.retry_after)
            after = self.remaining()
            assert all(after[place] == pytest.approx(left) for place, left in before.items())
        else:
            self.held.append((reservation, tokens))

    @rule(data=st.data(), tokens=st.integers(0, 1500), usd=st.integers(0, 15))
    def settle(self, data: st.DataObject, tokens: int, usd: int) -> None:
        if self.held:
            reservation, _ = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
            reservation.settle(used(tokens), dollars(usd), self.now)

    @rule()
    def reload(self) -> None:
        before = self.remaining()
        self.timed.configure(SCOPES, self.now)
        assert self.remaining() == pytest.approx(before)

    def remaining(self) -> dict[tuple[int, str], float]:
        """Usage by allowance and unit."""
        return {
            (id(allowance), unit): left
            for limit in self.timed.ledger.accounts["acme"].limits
            for allowance in limit
            for unit, left in allowance.remaining(self.now, self.timed.utc).items()
        }

    @invariant()
    def every_refusal_has_a_retry_after(self) -> None:
        assert all(wait is not None and 0 < wait <= 86_400 for wait in self.waits)

    @invariant()
    def counts_match_the_reservations(self) -> None:
        account = self.timed.ledger.accounts["acme"]
        assert account.in_flight == len(self.held) <= 6
        assert account.reserved_tokens == sum(tokens for _, tokens in self.held)
        for limit in account.limits:
            held = self.in_flight(limit)
            partly = limit.config.models is not None or limit.config.enforce == "shadow"
            assert held <= len(self.held) if partly else held == len(self.held)

    def teardown(self) -> None:
        for reservation, _ in self.held:
            reservation.settle(used(0), None, self.now)
        for limit in self.timed.ledger.accounts["acme"].limits:
            assert self.in_flight(limit) == 0

    def in_flight(self, limit: Limit) -> int:
        """The requests in flight of all subjects of a limit."""
        for allowance in limit:
            allowance.look(self.now, self.timed.utc)
        return sum(allowance.concurrency.in_flight for allowance in limit)


class SharedLedgerMachine(LedgerMachine):
    kind = "shared"


@pytest.mark.parametrize("machine", [LedgerMachine, SharedLedgerMachine])
def test_the_counts_match_the_reservations_over_any_schedule(machine: type[LedgerMachine]) -> None:
    run_state_machine_as_test(machine, settings=settings(max_examples=25, stateful_step_count=30, deadline=None))
