"""Writes ``models.json`` anew: ``python -m config.catalogue.build FOLDER``.

FOLDER is a virtual environment's site-packages with `genai-prices` (prices and contexts, MIT) and packages of LangChain
such as `langchain-openai` (limits and abilities, from models.dev, MIT). Only facts are taken.
"""

import importlib
import json
import runpy
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, NamedTuple

from config.catalogue.entries import ABILITIES
from config.catalogue.reading import SHIPPED


class PublishedSource(NamedTuple):
    """Where the facts of one provider are, and its hosts."""

    prices: str
    abilities: str = ""
    hosts: tuple[str, ...] = ()


_of = PublishedSource
SOURCES = {
    "openai": _of("openai", "openai", ("api.openai.com", "*.openai.azure.com", "*.cognitiveservices.azure.com")),
    "anthropic": _of("anthropic", "anthropic", ("api.anthropic.com",)),
    "google": _of("google", "google_genai", ("generativelanguage.googleapis.com", "*aiplatform.googleapis.com")),
    "bedrock": _of("aws", "aws", ("bedrock-runtime.*.amazonaws.com", "bedrock-mantle.*.api.aws")),
    "mistral": _of("mistral", "mistralai", ("api.mistral.ai", "codestral.mistral.ai")),
    "groq": _of("groq", "groq", ("api.groq.com",)),
    "deepseek": _of("deepseek", "deepseek", ("api.deepseek.com",)),
    "xai": _of("x-ai", "xai", ("api.x.ai", "*.api.x.ai")),
    "openrouter": _of("openrouter", "openrouter", ("openrouter.ai",)),
    "together": _of("together", "", ("api.together.xyz", "api.together.ai")),
    "fireworks": _of("fireworks", "fireworks", ("api.fireworks.ai",)),
    "cerebras": _of("cerebras", "", ("api.cerebras.ai",)),
    "perplexity": _of("perplexity", "perplexity", ("api.perplexity.ai",)),
    "cohere": _of("cohere", "", ("api.cohere.ai", "api.cohere.com")),
    "moonshot": _of("moonshotai", "", ("api.moonshot.ai", "api.moonshot.cn")),
    "zai": _of("zai", "", ("api.z.ai", "open.bigmodel.cn")),
    "voyage": _of("voyageai", "", ("api.voyageai.com",)),
    "databricks": _of("databricks", "", ("*.cloud.databricks.com", "*.azuredatabricks.net", "*.gcp.databricks.com")),
    "cloudflare": _of("cloudflare", "", ("api.cloudflare.com", "gateway.ai.cloudflare.com")),
}
_RATES = {
    "prompt": "input_mtok",
    "completion": "output_mtok",
    "cached": "cache_read_mtok",
    "cache_write": "cache_write_mtok",
    "reasoning": "output_reasoning_mtok",
}
_FLAGS = {
    "tools": "tool_calling",
    "vision": "image_inputs",
    "schema": "structured_output",
    "reasoning": "reasoning_output",
    "audio": "audio_inputs",
}


def build(folder: Path) -> str:
    """The text of the catalogue. The packages of the folder are imported."""
    sys.path.append(str(folder))
    priced = {provider.id: provider for provider in importlib.import_module("genai_prices.data").providers}
    today = datetime.now(UTC).date()
    data = {
        "date": today.isoformat(),
        "sources": [
            {"name": each.metadata["Name"], "version": each.version, "license": "MIT"}
            for each in sorted(distributions(path=[str(folder)]), key=lambda each: each.metadata["Name"])
            if each.metadata["Name"].startswith(("genai-prices", "langchain-"))
        ],
        "providers": {},
    }
    providers = {
        name: {"hosts": list(source.hosts), "models": _models(priced[source.prices], _profiles(folder, source), today)}
        for name, source in SOURCES.items()
    }
    return _text(data, providers)


def _profiles(folder: Path, source: PublishedSource) -> Mapping[str, Mapping[str, Any]]:
    path = folder / f"langchain_{source.abilities}" / "data" / "_profiles.py"
    if not path.exists():
        return {}
    profiles: Mapping[str, Mapping[str, Any]] = runpy.run_path(str(path))["_PROFILES"]
    return profiles


def _models(provider: Any, profiles: Mapping[str, Mapping[str, Any]], today: date) -> dict[str, dict[str, Any]]:
    few = provider.id == "openrouter"  # its list is longer than all others together
    names = [*profiles, *(model.id for model in provider.models if not few)]
    rows = {name: _row(name, provider, profiles.get(name, {}), today) for name in dict.fromkeys(names)}
    return {name: row for name, row in sorted(rows.items()) if row}


def _row(name: str, provider: Any, profile: Mapping[str, Any], today: date) -> dict[str, Any]:
    model = next((each for each in provider.models if each.id == name), None) or provider.find_model(name)
    row: dict[str, Any] = {
        "context": profile.get("max_input_tokens") or (model.context_window if model is not None else None),
        "output": profile.get("max_output_tokens") or None,
        "price": None if model is None else _price(model, today),
    }
    flags = {ability: profile[field] for ability, field in _FLAGS.items() if field in profile}
    if row["price"] and "cached" in row["price"]:
        flags["cache"] = True
    row["can"] = [ability for ability in ABILITIES if flags.get(ability) is True]
    row["lacks"] = [ability for ability in ABILITIES if flags.get(ability) is False]
    old = profile.get("status") == "deprecated" or (model is not None and model.id == name and model.deprecated)
    row["deprecated"] = "yes" if old else ""
    return {field: value for field, value in row.items() if value}


def _price(model: Any, today: date) -> dict[str, Any] | None:
    """The price of today; None for one that is no exact number of picos."""
    prices = _of_today(model.prices, today)
    base = {
        ours: getattr(prices, theirs) for ours, theirs in _RATES.items() if getattr(prices, theirs, None) is not None
    }
    if "prompt" not in base or any(amount is None for amount in base.values()):
        return None
    starts = sorted({tier.start for amount in base.values() for tier in getattr(amount, "tiers", ())})
    made: dict[str, Any] = {name: _written(_at(amount, 0)) for name, amount in base.items()}
    made.setdefault("completion", "0")
    if starts:
        made["tiers"] = [
            {
                "above": start,
                "completion": "0",
                **{name: _written(_at(amount, start + 1)) for name, amount in base.items()},
            }
            for start in starts
        ]
    if batch := _batch(model, base):
        made["batch"] = batch
    exact = [amount for row in (made, *made.get("tiers", ())) for name, amount in row.items() if name in _RATES]
    return made if all(_is_exact(amount) for amount in exact) else None


def _of_today(prices: Any, today: date) -> Any:
    rows = prices if isinstance(prices, list) else None
    if rows is None:
        return prices
    dated = [(getattr(row.constraint, "start_date", None), row) for row in rows]
    usable = [
        (start or date.min, row)
        for start, row in dated
        if row.constraint is None or (start is not None and start <= today)
    ]
    return max(usable, key=lambda pair: pair[0], default=(None, rows[0]))[1].prices


def _at(amount: Any, tokens: int) -> Decimal:
    """The price for a prompt of some tokens."""
    tiers = [
        tier.price for tier in sorted(getattr(amount, "tiers", ()), key=lambda tier: tier.start) if tokens > tier.start
    ]
    return Decimal(tiers[-1] if tiers else getattr(amount, "base", amount))


def _batch(model: Any, base: Mapping[str, Any]) -> str:
    """The share of the price that batches cost, if it is one."""
    variants = [each for each in model.price_variants or () if each.when == {"processing": "batch"}]
    if len(variants) != 1:
        return ""
    pairs = [
        (getattr(variants[0].prices, _RATES[name]), base[name]) for name in ("prompt", "completion") if name in base
    ]
    if any(cheap is None or hasattr(cheap, "tiers") or not _at(full, 0) for cheap, full in pairs):
        return ""
    shares = {Decimal(cheap) * 100 / _at(full, 0) for cheap, full in pairs}
    share = shares.pop() if len(shares) == 1 else Decimal(0)
    return f"{share.normalize():f}%" if 0 < share <= 100 and share == share.quantize(Decimal("0.01")) else ""


def _written(amount: Decimal) -> str:
    return f"{amount.normalize():f}"


def _is_exact(amount: str) -> bool:
    return Decimal(amount) * 10**6 == int(Decimal(amount) * 10**6)


def _text(data: Mapping[str, Any], providers: Mapping[str, Any]) -> str:
    """JSON with one line for each model."""
    lines = ["{", f' "date": {json.dumps(data["date"])},', ' "sources": [']
    lines += _listed([json.dumps(source) for source in data["sources"]], "  ")
    lines += [" ],", ' "providers": {']
    for index, (name, entry) in enumerate(providers.items()):
        lines += [f'  {json.dumps(name)}: {{"hosts": {json.dumps(entry["hosts"])}, "models": {{']
        rows = [f"{json.dumps(model)}: {_compact(row)}" for model, row in entry["models"].items()]
        lines += [*_listed(rows, "   "), "  }}" + ("," if index < len(providers) - 1 else "")]
    return "\n".join([*lines, " }", "}", ""])


def _listed(rows: list[str], indent: str) -> Iterator[str]:
    return (f"{indent}{row}{',' if index < len(rows) - 1 else ''}" for index, row in enumerate(rows))


def _compact(row: Mapping[str, Any]) -> str:
    return json.dumps(row, separators=(",", ":"), ensure_ascii=False)


if __name__ == "__main__":
    SHIPPED.write_text(build(Path(sys.argv[1])), encoding="utf-8")
