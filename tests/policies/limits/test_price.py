from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.schema.config import PriceConfig
from config.schema.money import PICOS
from policies.limits.price import WEIGHT, DeviceTime, Price


def price(**parts: Any) -> Price:
    return Price(PriceConfig.model_validate(parts))


def test_tokens_and_requests_add_up() -> None:
    both = price(prompt="0.15 usd/1M", completion="0.60 usd/1M", request="0.001 usd")
    assert str(both.cost(1_000_000, 500_000)) == "0.451 usd"
    assert str(price(request="0.001 EUR").cost(5, 5)) == "0.001 eur"


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)), max_size=50))
def test_many_small_costs_are_one_large_one(requests: list[tuple[int, int]]) -> None:
    tokens = price(prompt="0.000001 usd/1M", completion="0.6 usd/1k")
    total = sum(tokens.cost(prompt, completion).picos for prompt, completion in requests)
    assert total == tokens.cost(sum(p for p, _ in requests), sum(c for _, c in requests)).picos
    assert total == sum(p for p, _ in requests) + sum(c for _, c in requests) * 6 * PICOS // 10**4


def seconds(day: str) -> float:
    return datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp()


LISTED: dict[str, Any] = {
    "prompt": "3 usd/1M",
    "completion": "15 usd/1M",
    "cached": "0.3 usd/1M",
    "cache_write": "3.75 usd/1M",
    "reasoning": "20 usd/1M",
    "request": "0.01 usd",
    "tiers": [
        {
            "above": 200_000,
            "prompt": "6 usd/1M",
            "completion": "22.5 usd/1M",
            "cached": "0.6 usd/1M",
            "cache_write": "7.5 usd/1M",
        },
        {"above": 100_000, "prompt": "4 usd/1M", "completion": "16 usd/1M"},
    ],
    "changes": [
        {"since": "2027-03-01", "prompt": "1 usd/1M", "completion": "2 usd/1M"},
        {"since": "2027-01-01", "request": "0.5 usd"},
    ],
}


_RATES = ((100_000, (3, 15, 0.3, 3.75, 20)), (200_000, (4, 16, 4, 4, 16)), (10**9, (6, 22.5, 0.6, 7.5, 22.5)))
_counts = st.integers(0, 10**6)


@given(st.integers(0, 400_000), st.integers(0, 10**5), _counts, _counts, _counts)
def test_a_bill_can_be_computed_again_from_tokens_and_prices(
    prompt: int, completion: int, cached: int, reasoning: int, written: int
) -> None:
    """Also for a server that reports more tokens of a cache than the prompt has."""
    read, thought = min(cached, prompt), min(reasoning, completion)
    stored = min(written, prompt - read)
    picos = [round(rate * 10**6) for rate in next(rates for most, rates in _RATES if prompt <= most)]
    parts = (prompt - read - stored, completion - thought, read, stored, thought)
    expected = PICOS // 100 + sum(part * rate for part, rate in zip(parts, picos, strict=True))
    assert price(**LISTED).cost(prompt, completion, cached, reasoning, written).picos == expected


@pytest.mark.parametrize(
    ("day", "cost"),
    [("1970-01-01", "0.013 usd"), ("2026-12-31", "0.013 usd"), ("2027-01-01", "0.5 usd"), ("2027-02-28", "0.5 usd"),
     ("2027-03-01", "0.001 usd"), ("2099-01-01", "0.001 usd")],
)  # fmt: skip
def test_a_request_has_the_price_of_its_day(day: str, cost: str) -> None:
    listed = price(**LISTED)
    assert str(listed.at(seconds(day)).cost(1000, 0)) == cost
    assert str(listed.at(seconds("2027-01-01") - 0.001).cost(1000, 0)) == "0.013 usd"


def test_a_batch_costs_its_share_of_every_part() -> None:
    listed = price(**LISTED, batch="50%")
    for tokens in (1000, 150_000, 300_000):
        whole, share = listed.cost(tokens, 100, 50, 10), listed.of_batch.cost(tokens, 100, 50, 10)
        assert 2 * share.picos == whole.picos
    assert str(listed.of_batch.at(seconds("2027-01-01")).cost(5, 5)) == "0.25 usd"


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"cached": "1 usd/1M", "request": "1 usd"}, "parts of the others"),
        ({"cache_write": "1 usd/1M", "request": "1 usd"}, "parts of the others"),
        ({"request": "1 usd", "tiers": [{"above": 5, "prompt": "1 usd/1M", "completion": "1 usd/1M"}]}, "tiers are"),
        ({"prompt": "1 usd/1M"}, "go together"),
        ({**LISTED, "tiers": [{"above": 5}]}, "names no price"),
        ({**LISTED, "tiers": [LISTED["tiers"][0]] * 2}, "two tiers"),
        ({**LISTED, "changes": [LISTED["changes"][0]] * 2}, "two changes"),
        ({**LISTED, "cached": "1 eur/1M"}, "one currency"),
        ({**LISTED, "changes": [{"since": "2027-13-01", "request": "1 usd"}]}, "2027-13-01|day"),
    ],
)
def test_a_wrong_price_is_refused(parts: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        price(**parts)


def test_no_time_is_expected_before_a_report() -> None:
    assert DeviceTime().expected("m", "infer", 8) == 0


def test_reported_time_counts_by_the_row() -> None:
    time = DeviceTime()
    time.record("m", "infer", 4, 8.0)
    assert time.expected("m", "infer", 1) == 2.0
    assert time.expected("m", "infer", 10) == 20.0
    assert time.expected("another", "infer", 1) == 0


def test_the_mean_follows_the_reports() -> None:
    time = DeviceTime()
    time.record("m", "infer", 1, 10.0)
    time.record("m", "infer", 1, 20.0)
    assert time.expected("m", "infer", 1) == pytest.approx(10.0 + WEIGHT * 10.0)
    for _ in range(200):
        time.record("m", "infer", 1, 20.0)
    assert time.expected("m", "infer", 1) == pytest.approx(20.0, rel=1e-3)


def test_explanations_leave_the_mean_of_predictions_as_it_is() -> None:
    time = DeviceTime()
    time.record("m", "infer", 100, 100.0)
    time.record("m", "explain", 1, 9000.0)
    assert time.expected("m", "infer", 100) == 100.0
    assert time.expected("m", "explain", 2) == 18_000.0


def test_a_request_without_rows_is_one() -> None:
    time = DeviceTime()
    time.record("m", "infer", 0, 3.0)
    assert time.expected("m", "infer", 0) == 3.0


def test_tokens_that_are_written_for_an_hour_have_a_price_of_their_own() -> None:
    rates = {"prompt": "3 usd/1M", "completion": "15 usd/1M", "cached": "0.3 usd/1M", "cache_write": "3.75 usd/1M"}
    price = Price(PriceConfig.model_validate({**rates, "cache_write_hour": "6 usd/1M"}))
    cost = price.cost(1_000_000, 0, cached=500_000, cache_write=300_000, cache_hour=100_000)
    assert cost.picos == (200_000 * 3 + 500_000 * 0.3 + 200_000 * 3.75 + 100_000 * 6) * 10**6
    same = Price(PriceConfig.model_validate(rates))
    assert same.cost(1000, 0, cache_write=300, cache_hour=100) == same.cost(1000, 0, cache_write=300)
