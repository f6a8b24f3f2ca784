"""One model's facts."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

RATES: Final = ("prompt", "completion", "cached", "cache_write", "reasoning")
"""Prices of a million tokens, as in `price:`."""
ABILITIES: Final = ("tools", "vision", "schema", "reasoning", "cache", "audio")


@dataclass(frozen=True)
class ModelFacts:
    """What is published about a model. None and absent abilities are unpublished."""

    name: str
    provider: str
    context: int | None = None
    """Most tokens of prompt and answer together."""
    output: int | None = None
    """Most tokens of an answer."""
    price: Mapping[str, Any] | None = None
    """Dollars for a million tokens by rate, as decimal texts; ``tiers`` and ``batch`` as in `price:`."""
    can: frozenset[str] = frozenset()
    lacks: frozenset[str] = frozenset()
    deprecated: str = ""
    """The day from which it is deprecated, or ``yes`` without a published day; empty if it is not."""

    @classmethod
    def of(cls, provider: str, name: str, row: Mapping[str, Any]) -> "ModelFacts":
        """The facts from the data."""
        return cls(
            name,
            provider,
            row.get("context"),
            row.get("output"),
            row.get("price"),
            frozenset(row.get("can", ())),
            frozenset(row.get("lacks", ())),
            row.get("deprecated", ""),
        )

    def written_price(self) -> dict[str, Any] | None:
        """The price as `price:` has it."""
        if self.price is None:
            return None
        made = _rates(self.price)
        if tiers := self.price.get("tiers"):
            made["tiers"] = [{"above": tier["above"], **_rates(tier)} for tier in tiers]
        return {**made, "batch": self.price["batch"]} if "batch" in self.price else made

    def as_fields(self) -> dict[str, Any]:
        """The facts for an API: only what is published."""
        fields: dict[str, Any] = {"context_window": self.context, "max_output_tokens": self.output}
        fields["price"] = self.written_price()
        fields["abilities"] = [ability for ability in ABILITIES if ability in self.can] or None
        fields["deprecated"] = self.deprecated or None
        return {name: value for name, value in fields.items() if value is not None}


def _rates(amounts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: f"{amounts[name]} usd/1M" for name in RATES if name in amounts}
