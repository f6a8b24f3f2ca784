"""LiteLLM's list of prices, `model_prices_and_context_window.json`, as prices of this file.

The list has prices of one token in dollars, `KIND_cost_per_token`, and those of long prompts with the suffix
`_above_200k_tokens`. Prices that are no whole number of picos are refused: sums would no longer be exact.
"""

import json
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from config.schema.money import format_amount

_FIELDS = {
    "prompt": "input_cost_per_token",
    "completion": "output_cost_per_token",
    "cached": "cache_read_input_token_cost",
    "reasoning": "output_cost_per_reasoning_token",
}
_ABOVE = re.compile(r"_above_(\d{1,6})k_tokens")
_MOST = Decimal(10**6)
"""Dollars of one token. Larger numbers are no prices."""


class PriceListError(ValueError):
    """The list, or one of its prices, cannot be read."""


def read_list(text: str) -> Mapping[str, Mapping[str, Any]]:
    """The entries of a list by model. Raises `PriceListError`."""
    try:
        entries = json.loads(text, parse_float=Decimal, parse_int=Decimal)
    except (ValueError, RecursionError) as error:
        raise PriceListError(f"is not JSON: {error}") from None
    if not isinstance(entries, dict):
        raise PriceListError("is not an object of models")
    return {name: entry for name, entry in entries.items() if isinstance(entry, dict)}


def entry_of(entries: Mapping[str, Mapping[str, Any]], model: str) -> Mapping[str, Any] | None:
    """The entry of a model, by its name or, if that is unique, by its name behind a provider's: `azure/gpt-4o`."""
    if model in entries:
        return entries[model]
    behind = [entry for name, entry in entries.items() if name.endswith(f"/{model}")]
    return behind[0] if len(behind) == 1 else None


def price_of(entry: Mapping[str, Any]) -> dict[str, Any] | None:
    """The `price` of an entry; None for one without prices of tokens. Raises `PriceListError`."""
    rates = _rates(entry, "")
    if not rates:
        return None
    tiers = {int(match[1]): match[0] for name in entry if (match := _ABOVE.search(name)) is not None}
    made: dict[str, Any] = dict(rates)
    longer = [
        {"above": above * 1000, **rates, **other}
        for above, end in sorted(tiers.items())
        if (other := _rates(entry, end))
    ]
    return made | ({"tiers": longer} if longer else {})


def _rates(entry: Mapping[str, Any], ending: str) -> dict[str, str]:
    present = {name: entry.get(f"{field}{ending}") for name, field in _FIELDS.items()}
    rates = {name: _written(name, value) for name, value in present.items() if value is not None}
    if not ending and "prompt" in rates:
        rates.setdefault("completion", "0 usd/1M")  # embeddings
    return rates if ending or "prompt" in rates else {}


def _written(name: str, value: object) -> str:
    if not isinstance(value, Decimal) or not 0 <= value < _MOST:
        raise PriceListError(f"{_FIELDS[name]}: {str(value)[:40]!r} is not a price")
    picos = value.scaleb(12)
    if picos != picos.to_integral_value():
        raise PriceListError(f"{_FIELDS[name]}: {value} has more than 12 decimals")
    return f"{format_amount(int(picos) * 10**6)} usd/1M"
