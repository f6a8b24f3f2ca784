"""Discounts by the tokens of a month: exact, graduated, and never more than the amount."""

from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.schema.money import PICOS, PriceConfig, VolumeConfig
from gateway.features.usage.discounts import discount, volumes_of
from gateway.features.usage.export import invoice
from tests.support.gateways import config

VOLUME = [{"above": "100M", "discount": "10%"}, {"above": "1000M", "discount": "25%"}]
PRICE = {"prompt": "1 usd/1M", "completion": "1 usd/1M", "volume": VOLUME}


def volumes(*steps: tuple[int, float]) -> tuple[VolumeConfig, ...]:
    return tuple(VolumeConfig.model_construct(above=above, discount=share) for above, share in steps)


@pytest.mark.parametrize(("tokens", "usd"), [(0, 0), (10**8, 0), (2 * 10**8, 10), (10**9, 90), (2 * 10**9, 90 + 250)])
def test_tokens_beyond_a_number_have_its_discount(tokens: int, usd: int) -> None:
    made = volumes((10**9, 0.25), (10**8, 0.1))
    assert discount(made, tokens, tokens * PICOS // 10**6) == usd * PICOS


steps = st.dictionaries(st.integers(1, 10**9), st.integers(1, 100), max_size=5)


@given(steps, st.integers(0, 10**10), st.integers(0, 10**24))
def test_a_discount_is_the_sum_over_the_tokens(made: dict[int, int], tokens: int, picos: int) -> None:
    result = discount(volumes(*((above, share / 100) for above, share in made.items())), tokens, picos)
    assert 0 <= result <= picos
    bounds = [*sorted(made), max([tokens, *made])]
    exact = sum(
        (Fraction(made[low], 100) * max(0, min(tokens, high) - low) for low, high in pairwise(bounds)), Fraction(0)
    )
    assert result == (exact * picos / tokens if tokens else 0) // 1


def test_an_invoice_has_its_discounts() -> None:
    made = config(models=[{"name": "chat", "routes": [{"to": "main"}], "price": PRICE}])
    row: dict[str, Any] = {
        "model": "chat", "team": "", "currency": "usd", "picos": 200 * PICOS + 7, "requests": 3,
        "prompt_tokens": 150_000_000, "completion_tokens": 50_000_000, "rows": 0,
    }  # fmt: skip
    bill = invoice("acme", "2026-11", [row], volumes_of(made))
    assert bill["totals"] == [{"currency": "usd", "amount": "200.000000000007"}]
    assert bill["discounts"] == [{"model": "chat", "tokens": 200_000_000, "amount": "10", "currency": "usd"}]
    assert bill["due"] == [{"currency": "usd", "amount": "190.000000000007"}]
    small = {**row, "prompt_tokens": 5, "completion_tokens": 0}
    assert "due" not in invoice("acme", "2026-11", [small], volumes_of(made))


@pytest.mark.parametrize(
    "volume", [[{"above": 1, "discount": "0%"}], [{"above": 1, "discount": "101%"}], [VOLUME[0]] * 2]
)
def test_a_discount_without_sense_is_refused(volume: Any) -> None:
    with pytest.raises(ValueError, match=r"discount|percent|share"):
        PriceConfig.model_validate({**PRICE, "volume": volume})
