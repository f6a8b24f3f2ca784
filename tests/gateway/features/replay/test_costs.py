"""The cost of recorded requests under other prices: equal to the charge of the gateway."""

from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from adapters.types import Usage
from config.schema.money import PriceConfig
from gateway.features.recording.entries import RecordEntry, Usages
from gateway.features.replay.outcomes import cost_of
from gateway.request.path_parts import charge
from policies.limits.price import Price

CHANGE = datetime(2027, 1, 1, tzinfo=UTC).timestamp()
PRICE = Price(
    PriceConfig.model_validate(
        {
            "prompt": "3 usd/1M",
            "completion": "15 usd/1M",
            "cached": "0.3 usd/1M",
            "cache_write": "3.75 usd/1M",
            "reasoning": "20 usd/1M",
            "tiers": [{"above": 1000, "prompt": "6 usd/1M", "completion": "22 usd/1M"}],
            "changes": [
                {"since": "2027-01-01", "prompt": "2 usd/1M", "completion": "12 usd/1M", "cached": "0.2 usd/1M"}
            ],
        }
    )
)
tokens = st.integers(0, 3000)


@given(tokens, tokens, tokens, tokens, tokens, st.integers(-100, 100), st.booleans())
def test_a_recorded_request_costs_the_charge_of_the_gateway(
    prompt: int, completion: int, cached: int, reasoning: int, written: int, days: int, has_decision: bool
) -> None:
    begin = CHANGE + days * 86400
    moment: dict[str, Any] = {"decided": begin} if has_decision else {}
    entry = RecordEntry(1, "r", 0, round(begin * 1e9), "chat", **moment)
    parts: dict[str, Any] = {"cached_tokens": cached, "reasoning_tokens": reasoning, "cache_write_tokens": written}
    recorded, usage = Usages(prompt, completion, **parts), Usage(prompt, completion, **parts)
    assert cost_of(entry, recorded, PRICE) == charge(PRICE.at(begin), usage)
