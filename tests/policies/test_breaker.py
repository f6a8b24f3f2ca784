from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from policies.breaker import LONGEST, LONGEST_REST, Breaker

FAILURES, OPEN_FOR = 3, 8.0


class BreakerMachine(RuleBasedStateMachine):
    """A client that obeys `allows`, against a model in plain words.

    Times are multiples of a quarter second, which floats hold exactly.
    """

    def __init__(self) -> None:
        super().__init__()
        self.breaker = Breaker(FAILURES, OPEN_FOR)
        self.now = 1000.0
        self.in_a_row = 0
        self.open_until: float | None = None
        self.wait = OPEN_FOR
        self.trial_began: float | None = None
        self.rests_until = 0.0

    def let_through(self) -> bool:
        if self.now < self.rests_until:
            return False
        if self.open_until is None:
            return True
        trial_holds = self.trial_began is not None and self.now - self.trial_began < OPEN_FOR
        return self.now >= self.open_until and not trial_holds

    @rule(quarters=st.integers(1, 400))
    def time_passes(self, quarters: int) -> None:
        self.now += quarters / 4

    @rule()
    def time_passes_until_a_call_may_be_made(self) -> None:
        self.now += self.breaker.retry_after(self.now)
        assert self.breaker.allows(self.now)

    @precondition(lambda self: self.let_through())
    @rule()
    def call(self) -> None:
        self.breaker.begin(self.now)
        if self.open_until is not None:
            self.trial_began = self.now
            assert not self.breaker.allows(self.now), "one trial at a time"

    @rule()
    def call_succeeds(self) -> None:
        self.breaker.success(self.now)
        if self.open_until is None or self.trial_began is not None:
            self.in_a_row, self.open_until, self.wait, self.trial_began = 0, None, OPEN_FOR, None

    @rule()
    def call_fails(self) -> None:
        self.breaker.failure(self.now)
        if self.open_until is None:
            self.in_a_row += 1
            if self.in_a_row == FAILURES:
                self.open_until = self.now + self.wait
        elif self.trial_began is not None:
            self.wait = min(2 * self.wait, LONGEST * OPEN_FOR)
            self.open_until, self.trial_began = self.now + self.wait, None

    @rule()
    def calls_fail_until_it_opens(self) -> None:
        while self.open_until is None:
            self.call_fails()

    @rule()
    def call_is_abandoned(self) -> None:
        before = self.breaker.state(self.now)
        self.breaker.abandoned(self.now)
        self.trial_began = None
        assert self.breaker.state(self.now) == before

    @rule(quarters=st.integers(0, 400) | st.just(10**9))
    def endpoint_requests_rest(self, quarters: int) -> None:
        self.breaker.rest(quarters / 4, self.now)
        self.rests_until = max(self.rests_until, self.now + min(quarters / 4, LONGEST_REST))

    @invariant()
    def agrees_with_the_model(self) -> None:
        waiting = self.open_until is not None and self.now < self.open_until
        state = "closed" if self.open_until is None else "open" if waiting else "half_open"
        assert self.breaker.state(self.now) == state
        assert self.breaker.allows(self.now) is self.let_through()
        assert self.breaker.rests(self.now) == max(0.0, self.rests_until - self.now)

    @invariant()
    def retry_after_is_0_exactly_when_a_call_is_allowed(self) -> None:
        wait = self.breaker.retry_after(self.now)
        assert (wait == 0) is self.breaker.allows(self.now)
        assert 0 <= wait <= LONGEST * OPEN_FOR


BreakerMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestBreakerMachine = BreakerMachine.TestCase


def opened(at: float = 0.0) -> Breaker:
    breaker = Breaker(FAILURES, OPEN_FOR)
    for _ in range(FAILURES):
        breaker.failure(at)
    return breaker


def test_the_wait_doubles_with_each_failed_trial_up_to_8_times_and_starts_over_after_a_success() -> None:
    breaker, now, waits = opened(), 0.0, []
    for _ in range(5):
        waits.append(breaker.retry_after(now))
        now += waits[-1]
        breaker.begin(now)
        breaker.failure(now)
    assert waits == [OPEN_FOR * factor for factor in (1, 2, 4, 8, 8)]

    now += breaker.retry_after(now)
    breaker.begin(now)
    breaker.success(now)
    assert breaker.state(now) == "closed"
    for _ in range(FAILURES):
        breaker.failure(now)
    assert breaker.retry_after(now) == OPEN_FOR


def test_new_settings_hold_from_the_next_opening() -> None:
    breaker = Breaker(FAILURES, OPEN_FOR)
    breaker.failures, breaker.open_for = 1, 60.0
    breaker.failure(0.0)
    assert breaker.retry_after(0.0) == 60.0
    breaker.open_for = 5.0
    assert breaker.retry_after(0.0) == 60.0
    breaker.begin(60.0)
    breaker.failure(60.0)
    assert breaker.retry_after(60.0) == 10.0


def test_a_shorter_wish_to_rest_does_not_shorten_a_longer_one() -> None:
    breaker = Breaker(FAILURES, OPEN_FOR)
    breaker.rest(20.0, 0.0)
    breaker.rest(1.0, 1.0)
    breaker.success(2.0)
    assert breaker.rests(19.0)
    assert not breaker.rests(20.0)
    assert breaker.state(1.0) == "closed"
    breaker.rest(1e9, 20.0)
    assert breaker.retry_after(20.0) == LONGEST_REST


def test_the_next_change_by_time_is_the_first_of_its_ends() -> None:
    breaker = Breaker(1, 10.0)
    assert breaker.next_change(0.0) == 0.0
    breaker.failure(0.0)
    breaker.rest(3.0, 0.0)
    assert (breaker.next_change(0.0), breaker.retry_after(0.0)) == (3.0, 10.0)
    assert breaker.next_change(3.0) == 7.0
    assert breaker.next_change(10.0) == 0.0
