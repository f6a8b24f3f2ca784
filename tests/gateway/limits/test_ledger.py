from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from adapters.errors import LimitExceeded
from config.schema import TenantConfig
from gateway.limits.ledger import Ledger, Reservation


def ledger(**limits: Any) -> Ledger:
    made = Ledger()
    made.configure([tenant(**limits)], now=0.0)
    return made


def tenant(**limits: Any) -> TenantConfig:
    return TenantConfig.model_validate({"name": "acme", "models": ["*"], "limits": limits})


def test_the_limit_that_refuses_is_named_and_says_when() -> None:
    books = ledger(requests="2/min")
    for _ in range(2):
        books.reserve("acme", 1, now=0.0).settle(1, now=0.0)
    with pytest.raises(LimitExceeded) as refused:
        books.reserve("acme", 1, now=0.0)
    assert refused.value.limit == "requests"
    assert refused.value.retry_after == pytest.approx(30, abs=0.01)
    assert refused.value.retry_after is not None
    books.reserve("acme", 1, now=refused.value.retry_after)


def test_a_refusal_takes_nothing() -> None:
    books = ledger(requests="10/min", tokens="100/min", concurrency=5)
    held = books.reserve("acme", 100, now=0.0)
    before = books.accounts["acme"].buckets["requests"].remaining(0.0)
    with pytest.raises(LimitExceeded, match="tokens"):
        books.reserve("acme", 50, now=0.0)
    account = books.accounts["acme"]
    assert account.buckets["requests"].remaining(0.0) == before
    assert account.concurrency.in_flight == 1
    assert account.reserved_tokens == 100
    held.settle(0, now=0.0)
    assert account.buckets["tokens"].remaining(0.0) == 100


def test_the_truth_is_charged_even_beyond_the_estimate() -> None:
    books = ledger(tokens="100/min")
    books.reserve("acme", 10, now=0.0).settle(160, now=0.0)
    with pytest.raises(LimitExceeded) as refused:
        books.reserve("acme", 40, now=0.0)
    assert refused.value.retry_after == pytest.approx(60, abs=0.01)  # 60 of debt and 40 to earn, at 100/min


def test_an_estimate_above_the_limit_is_not_refused_for_ever() -> None:
    books = ledger(tokens="100/min")
    books.reserve("acme", 5000, now=0.0).settle(20, now=0.0)
    assert books.accounts["acme"].buckets["tokens"].remaining(0.0) == 80


def test_settling_twice_changes_nothing() -> None:
    books = ledger(tokens="100/min", concurrency=1)
    held = books.reserve("acme", 50, now=0.0)
    held.settle(10, now=0.0)
    held.settle(90, now=0.0)
    assert books.accounts["acme"].buckets["tokens"].remaining(0.0) == 90
    assert books.accounts["acme"].concurrency.in_flight == 0


def test_a_new_limit_keeps_the_share_used_and_what_is_in_flight() -> None:
    books = ledger(requests="100/min", concurrency=4)
    held = [books.reserve("acme", 1, now=0.0) for _ in range(4)]
    books.configure([tenant(requests="50/min", concurrency=2)], now=0.0)
    account = books.accounts["acme"]
    assert account.buckets["requests"].remaining(0.0) == 48
    for reservation in held[:3]:
        reservation.settle(0, now=0.0)
    books.reserve("acme", 1, now=0.0)
    with pytest.raises(LimitExceeded, match="at once"):
        books.reserve("acme", 1, now=0.0)


def test_a_limit_may_come_and_go_while_requests_run() -> None:
    books = ledger()
    held = books.reserve("acme", 10, now=0.0)
    books.configure([tenant(concurrency=1, tokens="100/min")], now=0.0)
    with pytest.raises(LimitExceeded):
        books.reserve("acme", 10, now=0.0)
    held.settle(10, now=0.0)
    assert books.accounts["acme"].concurrency.in_flight == 0
    assert books.accounts["acme"].buckets["tokens"].remaining(0.0) == 90


def test_a_tenant_that_left_is_forgotten_once_idle() -> None:
    books = ledger()
    held = books.reserve("acme", 1, now=0.0)
    books.configure([], now=0.0)
    assert "acme" in books.accounts
    held.settle(1, now=0.0)
    books.configure([], now=0.0)
    assert not books.accounts


class LedgerMachine(RuleBasedStateMachine):
    """Whatever is reserved, refused and settled in whatever order: the counts are those of what is held."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.ledger = ledger(requests="50/min", tokens="1000/min", concurrency=4)
        self.held: list[tuple[Reservation, float]] = []
        self.waits: list[float | None] = []

    @rule(tokens=st.integers(0, 1500), passed=st.floats(0, 30))
    def reserve(self, tokens: int, passed: float) -> None:
        self.now += passed
        try:
            reservation = self.ledger.reserve("acme", tokens, self.now)
        except LimitExceeded as refused:
            self.waits.append(refused.retry_after)
        else:
            self.held.append((reservation, min(tokens, 1000)))

    @rule(data=st.data(), actual=st.integers(0, 1500))
    def settle(self, data: st.DataObject, actual: int) -> None:
        if self.held:
            reservation, _ = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
            reservation.settle(actual, self.now)

    @invariant()
    def every_refusal_says_when(self) -> None:
        assert all(wait is not None and 0 < wait <= 3600 for wait in self.waits)

    @invariant()
    def counts_are_what_is_held(self) -> None:
        account = self.ledger.accounts["acme"]
        assert account.concurrency.in_flight == len(self.held) <= 4
        assert account.reserved_tokens == sum(tokens for _, tokens in self.held)
        assert 0 <= account.buckets["requests"].remaining(self.now) <= 50


TestLedgerMachine = LedgerMachine.TestCase
