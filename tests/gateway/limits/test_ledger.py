from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.errors import LimitExceeded
from config.schema.config import ClientModelConfig
from config.schema.money import PICOS
from gateway.limits.account import OTHER_KEYS
from gateway.limits.ledger import Reservation
from policies.facts import Facts
from tests.gateway.limits.timed_ledger import TimedLedger, dollars, ledger, tenant, used


@pytest.fixture(params=["memory", "shared"], autouse=True, scope="module")
def _kind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every test runs on every kind of ledger."""
    TimedLedger.kind = request.param
    yield
    TimedLedger.kind = "memory"


def test_a_refusal_names_its_limit_and_retry_after() -> None:
    timed = ledger(requests="2/min")
    for _ in range(2):
        timed.reserve(1, now=0.0).settle(used(1), None, now=0.0)
    with pytest.raises(LimitExceeded) as refused:
        timed.reserve(1, now=0.0)
    assert refused.value.limit == "requests"
    assert refused.value.retry_after == pytest.approx(30, abs=0.01)
    assert refused.value.retry_after is not None
    timed.reserve(1, now=refused.value.retry_after)


def test_the_truth_is_charged_even_beyond_the_estimate() -> None:
    timed = ledger(tokens="100/min")
    timed.reserve(10, now=0.0).settle(used(160), None, now=0.0)
    with pytest.raises(LimitExceeded) as refused:
        timed.reserve(40, now=0.0)
    assert refused.value.retry_after == pytest.approx(60, abs=0.01)  # 60 of debt and 40 to earn, at 100/min


def test_an_estimate_above_the_limit_is_not_refused_for_ever() -> None:
    timed = ledger(tokens="100/min")
    timed.reserve(5000, now=0.0).settle(used(20), None, now=0.0)
    assert timed.left("tokens") == 80


def test_settling_twice_changes_nothing() -> None:
    timed = ledger(tokens="100/min", concurrency=1)
    held = timed.reserve(50, now=0.0)
    held.settle(used(10), None, now=0.0)
    held.settle(used(90), None, now=0.0)
    assert timed.left("tokens") == 90
    assert timed.ledger.accounts["acme"].in_flight == 0


def test_a_new_limit_preserves_the_used_share_and_the_requests_in_flight() -> None:
    timed = ledger(requests="100/min", concurrency=4)
    held = [timed.reserve(1, now=0.0) for _ in range(4)]
    timed.configure({"requests": "50/min", "concurrency": 2})
    assert timed.left("requests") == 48
    for reservation in held[:3]:
        reservation.settle(used(0), None, now=0.0)
    timed.reserve(1, now=0.0)
    with pytest.raises(LimitExceeded, match="at once"):
        timed.reserve(1, now=0.0)


def test_a_limit_may_come_and_go_while_requests_run() -> None:
    timed = ledger()
    held = timed.reserve(10, now=0.0)
    timed.configure({"concurrency": 1, "tokens": "100/min"})
    with pytest.raises(LimitExceeded):
        timed.reserve(10, now=0.0)
    held.settle(used(10), None, now=0.0)
    assert timed.ledger.accounts["acme"].in_flight == 0
    assert timed.left("tokens") == 90


def test_a_tenant_that_left_is_forgotten_once_idle() -> None:
    timed = ledger()
    held = timed.reserve(1, now=0.0)
    timed.ledger.configure([], now=0.0)
    assert "acme" in timed.ledger.accounts
    held.settle(used(1), None, now=0.0)
    timed.ledger.configure([], now=0.0)
    assert not timed.ledger.accounts


def test_the_tightest_of_several_is_named_with_its_scope() -> None:
    timed = TimedLedger([{"requests": "2/min"}, {"tokens": "100/h", "per": "key", "models": ["ch*"]}])
    timed.reserve(100).settle(used(100), None, 0.0)
    with pytest.raises(LimitExceeded, match=r"tokens: 100/h for each key, models ch\*"):
        timed.reserve(50)
    timed.reserve(50, key="k2").settle(used(50), None, 0.0)
    with pytest.raises(LimitExceeded, match="tokens") as refused:  # requests would be granted earlier
        timed.reserve(100, key="k2")
    assert refused.value.limit == "tokens"
    assert refused.value.retry_after == pytest.approx(1800, abs=0.01)
    with pytest.raises(LimitExceeded, match="requests: 2/min for the whole tenant"):
        timed.reserve(1, model="other")


def test_each_key_and_each_model_has_its_own() -> None:
    timed = TimedLedger([{"requests": "1/min", "per": "key"}, {"requests": "2/min", "per": "model"}])
    timed.reserve(key="k1")
    timed.reserve(key="k2")
    with pytest.raises(LimitExceeded, match="each model"):
        timed.reserve(key="k3")
    timed.reserve(key="k3", model="other")
    with pytest.raises(LimitExceeded, match="each key"):
        timed.reserve(key="k1", model="third")


def test_a_request_without_a_user_counts_for_its_key_and_a_user_cannot_take_a_keys_name() -> None:
    timed = TimedLedger([{"requests": "1/min", "per": "user"}])
    for user in ("ann", "bob", "key:k1", "x" * 5000, "x" * 5001, None):
        timed.reserve(user=user)
    for user in ("ann", "x" * 5000, None, ""):
        with pytest.raises(LimitExceeded, match="each user"):
            timed.reserve(user=user)


def test_a_limit_for_some_models_counts_no_other() -> None:
    timed = TimedLedger([{"requests": "1/min", "models": ["big-*"]}])
    for _ in range(3):
        timed.reserve(model="small")
    timed.reserve(model="big-1")
    with pytest.raises(LimitExceeded):
        timed.reserve(model="big-2")


def test_shadow_reports_and_refuses_nothing() -> None:
    timed = TimedLedger([{"requests": "10/min"}, {"requests": "1/min", "tokens": "10/h", "enforce": "shadow"}])
    assert timed.reserve(10).shadowed == ()
    (shadowed,) = timed.reserve(10).shadowed
    assert shadowed == ("tokens", "tenant")
    for _ in range(8):
        timed.reserve()
    with pytest.raises(LimitExceeded, match="10/min"):
        timed.reserve()


def test_a_shadow_that_becomes_enforced_continues_its_counts() -> None:
    timed = TimedLedger([{"requests": "4/min", "enforce": "shadow"}])
    timed.reserve()
    timed.configure([{"requests": "1/min", "per": "key"}, {"requests": "8/min"}])
    assert timed.left("requests") == 6  # a quarter used


def test_a_budget_cannot_be_passed_by_requests_at_the_same_time() -> None:
    timed = ledger(spend="1 usd/day")
    held = [timed.reserve(usd=0.25) for _ in range(4)]
    with pytest.raises(LimitExceeded, match=r"spend: 1 usd/day for the whole tenant") as refused:
        timed.reserve(usd=0.25)
    assert refused.value.retry_after == 12 * 3600
    for reservation in held[:2]:
        reservation.settle(used(1), dollars(0.05), 0.0)
    assert timed.left("spend") == 0.4
    held[2].settle(used(0), None, 0.0)  # never answered
    assert timed.left("spend") == 0.65
    timed.utc += 12 * 3600
    assert timed.left("spend") == 1
    held[3].settle(used(1), dollars(0.25), 0.0)  # belongs to yesterday
    assert timed.left("spend") == 1


def test_a_budget_survives_a_reload() -> None:
    timed = ledger(spend="1 usd/month")
    held = timed.reserve(usd=0.5)
    timed.configure({"spend": "2 usd/month"})
    assert timed.left("spend") == 1.5
    timed.configure({"spend": "2 usd/day"})
    held.settle(used(1), dollars(1.5), 0.0)
    assert timed.left("spend") == 0.5
    late = timed.reserve(usd=0.5)
    timed.configure({})
    timed.configure({"spend": "1 usd/day"})
    late.settle(used(1), dollars(0.2), 0.0)  # it holds no part of the new limit: its use never falls below zero
    assert 0 <= timed.left("spend") <= 1


def test_spend_is_counted_by_key_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.limits.account.MAX_SUBJECTS", 2)
    timed = ledger()
    for key in ("a", "b", "a", "c", "d"):
        timed.reserve(usd=1, key=key).settle(used(1), dollars(0.1), 0.0)
    spent = timed.ledger.accounts["acme"].spent
    assert {key: picos * 10 // PICOS for (key, _), picos in spent.items()} == {"a": 2, "b": 1, OTHER_KEYS: 2}


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 40), st.integers(0, 60)), max_size=60))
def test_no_interleaving_spends_more_than_the_budget_and_the_last_underestimate(
    steps: list[tuple[bool, int, int]],
) -> None:
    """Each step reserves (an estimate) or settles some held one (the truth)."""
    timed = ledger(spend="100 usd/day")
    held: list[tuple[Reservation, int]] = []
    spent = under = 0
    for reserves, estimate, truth in steps:
        if reserves:
            try:
                held.append((timed.reserve(usd=estimate), estimate))
            except LimitExceeded:
                continue
            under = 0  # admitted: the budget held all that was spent and reserved until now
        elif held:
            reservation, reserved = held.pop(estimate % len(held))
            reservation.settle(used(1), dollars(truth), 0.0)
            spent += truth
            under += max(0, truth - reserved)
        assert spent <= 100 + under
    assert timed.left("spend") == max(0, 100 - spent - sum(reserved for _, reserved in held))


PER = st.sampled_from(("tenant", "key", "model", "user"))
MODELS = st.sampled_from((None, ["chat"], ["chat", "embed"]))
LIMITS = st.lists(st.tuples(PER, MODELS), min_size=1, max_size=4)


@given(LIMITS, st.booleans())
def test_the_calls_of_a_request_need_no_other_allowances_if_the_key_determines_them(
    limits: list[tuple[str, list[str] | None]], limited_model: bool
) -> None:
    written = [
        {"per": per, "requests": f"{at + 1}/min", **({} if models is None else {"models": models})}
        for at, (per, models) in enumerate(limits)
    ]
    timed = TimedLedger(written)
    if limited_model:
        fields = {"name": "embed", "routes": [{"to": "p"}], "limits": {"requests": "9/min"}}
        timed.ledger.configure([tenant(written)], 0.0, [ClientModelConfig.model_validate(fields)])

    def allowances(model: str, user: str | None) -> set[int]:
        facts = Facts("acme", "k1", model, {}, False, 1, user, "r")
        return {id(each) for each in timed.ledger.allowances(facts, model, 0.0)}

    of_request = allowances("chat", "ann")
    for model in ("chat", "embed", "other"):
        facts = Facts("acme", "k1", model, {}, False, 1, "bob", "r")
        if timed.ledger.is_for_each_request(facts, model):
            assert allowances(model, "bob") == of_request
        else:
            assert (limited_model and model == "embed") or any(
                per in ("model", "user") or models is not None for per, models in limits
            )
