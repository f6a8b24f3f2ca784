from hypothesis import given
from hypothesis import strategies as st

from config.schema.config import PriceConfig
from config.schema.money import PICOS
from policies.limits.price import Price


def price(**parts: str) -> Price:
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
