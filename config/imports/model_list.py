"""LiteLLM's list of prices, `model_prices_and_context_window.json`, as a catalogue."""

from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from typing import Any, Final

from config.catalogue.entries import ABILITIES, RATES
from config.catalogue.reading import ModelCatalogue
from config.imports.price_list import PriceListError, price_of

_FLAGS: Final = {
    "tools": "supports_function_calling",
    "vision": "supports_vision",
    "schema": "supports_response_schema",
    "reasoning": "supports_reasoning",
    "cache": "supports_prompt_caching",
    "audio": "supports_audio_input",
}
_PROVIDERS: Final = (
    ("text-completion-openai", "openai"), ("gemini", "google"), ("vertex_ai", "google"), ("bedrock", "bedrock"),
    ("openai", "openai"), ("azure", "openai"), ("anthropic", "anthropic"), ("mistral", "mistral"), ("groq", "groq"),
    ("deepseek", "deepseek"), ("xai", "xai"), ("openrouter", "openrouter"), ("together", "together"),
    ("fireworks", "fireworks"), ("cerebras", "cerebras"), ("perplexity", "perplexity"), ("cohere", "cohere"),
    ("moonshot", "moonshot"), ("zai", "zai"), ("voyage", "voyage"), ("databricks", "databricks"),
    ("cloudflare", "cloudflare"),
)  # fmt: skip
"""Beginnings of LiteLLM's names of providers, and ours."""
_MOST: Final = 10**12


def catalogue_of(
    entries: Mapping[str, Mapping[str, Any]], day: str, source: str, hosts: Mapping[str, tuple[str, ...]]
) -> dict[str, Any]:
    """The data of a catalogue. Entries of other providers, and prices that are not exact, are left out."""
    providers: dict[str, dict[str, Any]] = {name: {"hosts": list(globs), "models": {}} for name, globs in hosts.items()}
    for name, entry in sorted(entries.items()):
        theirs = str(entry.get("litellm_provider", ""))
        ours = next((provider for start, provider in _PROVIDERS if theirs.startswith(start)), None)
        if ours in providers and (row := _row(entry)):
            plain = name.partition("/")[2] if name.startswith(f"{theirs}/") or name.startswith(f"{ours}/") else name
            providers[ours]["models"].setdefault(plain, row)
    data = {"date": day, "sources": [{"name": source}], "providers": providers}
    ModelCatalogue(data)
    return data


def _row(entry: Mapping[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = {
        "context": _count(entry.get("max_input_tokens")),
        "output": _count(entry.get("max_output_tokens")),
        "price": _price(entry),
        "can": [ability for ability in ABILITIES if entry.get(_FLAGS[ability]) is True],
        "lacks": [ability for ability in ABILITIES if entry.get(_FLAGS[ability]) is False],
        "deprecated": _day(entry.get("deprecation_date")),
    }
    return {name: value for name, value in row.items() if value}


def _count(value: object) -> int | None:
    return int(value) if isinstance(value, Decimal) and 0 < value < _MOST and value == int(value) else None


def _day(value: object) -> str:
    try:
        return date.fromisoformat(value).isoformat() if isinstance(value, str) else ""
    except ValueError:
        return ""


def _price(entry: Mapping[str, Any]) -> dict[str, Any] | None:
    try:
        price = price_of(entry)
    except PriceListError:
        return None
    return None if price is None else _plain(price)


def _plain(price: Mapping[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {
        name: value.removesuffix(" usd/1M") if name in RATES else value for name, value in price.items()
    }
    if "tiers" in made:
        made["tiers"] = [_plain(tier) for tier in made["tiers"]]
    return made
