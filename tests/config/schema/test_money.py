from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.schema.money import (
    PICOS,
    Money,
    MoneyBudget,
    currency_of,
    format_amount,
    parse_amount,
    parse_budget,
    parse_token_price,
)


def test_amounts_that_are_parsed() -> None:
    assert parse_token_price("0.15 usd/1M") == Money(150_000, "usd")
    assert parse_token_price("0.002usd / 1k") == Money(2_000_000, "usd")
    assert parse_amount(" 0.001 EUR ") == Money(PICOS // 1000, "eur")
    assert parse_budget("50 usd/month") == MoneyBudget(50 * PICOS, "usd", "month")
    assert str(parse_token_price("0.000123 usd/1M")) == "0.000123 usd/1M"
    assert str(parse_budget("2.50 USD/hour")) == "2.5 usd/hour"


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (parse_token_price, "0.15 usd"),
        (parse_token_price, "0.15/1M"),
        (parse_token_price, "-1 usd/1M"),
        (parse_token_price, "0.0000001 usd/1M"),
        (parse_amount, "1 dollar"),
        (parse_amount, "1e3 usd"),
        (parse_amount, "9" * 40 + " usd"),
        (parse_amount, 3),
        (parse_budget, "50 usd"),
        (parse_budget, "50 usd/week"),
        (parse_budget, "0 usd/day"),
    ],
)
def test_amounts_that_are_refused(parse: Callable[[object], object], text: object) -> None:
    with pytest.raises(ValueError, match=r"^(expected|a price has|a budget is)"):
        parse(text)


@given(st.integers(0, 10**20))
def test_amounts_survive_being_written(picos: int) -> None:
    assert parse_amount(f"{format_amount(picos)} usd").picos == picos


def test_currency_of() -> None:
    assert currency_of("1 USD/month") == currency_of("1 usd") == "usd"
    assert currency_of("nothing") is None
