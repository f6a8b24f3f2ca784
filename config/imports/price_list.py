"""LiteLLM's list of prices, `model_prices_and_context_window.json`, as prices of this file.

The list has prices of one token in dollars, `KIND_cost_per_token`, those of long prompts with the suffix
`_above_200k_tokens`, and those of batches with the suffix `_batches`. Prices that are no whole number of picos are
refused, as sums would no longer be exact, unless that is an error of binary floating point: 4.0000000000000003E-7.
"""

import json
import re
from collections.abc import Mapping
from decimal import Context, Decimal
from typing import Any

from config.schema.money import format_amount

_FIELDS = {
    "prompt": "input_cost_per_token",
    "completion": "output_cost_per_token",
    "cached": "cache_read_input_token_cost",
    "cache_write": "cache_creation_input_token_cost",
    "cache_write_hour": "cache_creation_input_token_cost_above_1hr",
    "reasoning": "output_cost_per_reasoning_token",
}
_ABOVE = re.compile(r"_above_(\d{1,6})k_tokens")
_BATCH = ("input_cost_per_token", "output_cost_per_token")
_BATCHES = "_batches"
_FLOAT = Context(prec=15)
"""Digits that binary floating point has without an error."""
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
    batch = _batch_of(entry)
    return made | ({"tiers": longer} if longer else {}) | ({} if batch is None else {"batch": batch})


def unread(entry: Mapping[str, Any]) -> list[str]:
    """The prices of an entry that `price_of` leaves out, such as those of images."""
    read = set(_FIELDS.values())
    if _batch_of(entry) is not None:
        read |= {f"{field}{_BATCHES}" for field in _BATCH}
    priced = (name for name, value in entry.items() if value and ("cost" in name or "pricing" in name))
    return sorted(name for name in priced if _ABOVE.sub("", name) not in read)


def _batch_of(entry: Mapping[str, Any]) -> str | None:
    """The share of the price that a line of a batch costs, if it is one share of all prices of tokens."""
    pairs = [(entry.get(field), entry.get(f"{field}{_BATCHES}")) for field in _BATCH]
    shares = {
        batch * 100 / price
        for price, batch in pairs
        if isinstance(price, Decimal) and isinstance(batch, Decimal) and 0 < batch <= price
    }
    complete = all((price is None or price == 0) == (batch is None or batch == 0) for price, batch in pairs)
    share = shares.pop() if complete and len(shares) == 1 else None
    return None if share is None or share != share.quantize(Decimal("0.01")) else f"{share.normalize():f}%"


def _rates(entry: Mapping[str, Any], ending: str) -> dict[str, str]:
    present = {name: entry.get(f"{field}{ending}") for name, field in _FIELDS.items()}
    rates = {name: _written(name, value) for name, value in present.items() if value is not None}
    if not ending and "prompt" in rates:
        rates.setdefault("completion", "0 usd/1M")  # embeddings
    return rates if ending or "prompt" in rates else {}


def _written(name: str, value: object) -> str:
    if not isinstance(value, Decimal) or not 0 <= value < _MOST:
        raise PriceListError(f"{_FIELDS[name]}: {str(value)[:40]!r} is not a price")
    picos = _picos(value)
    if picos != picos.to_integral_value():
        raise PriceListError(f"{_FIELDS[name]}: {value} has more than 12 decimals")
    return f"{format_amount(int(picos) * 10**6)} usd/1M"


def _picos(value: Decimal) -> Decimal:
    picos = value.scaleb(12)
    return picos if picos == picos.to_integral_value() else _FLOAT.plus(picos)
