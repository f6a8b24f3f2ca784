"""The prices of copies, which the operator pays."""

from collections.abc import Mapping

from config.schema.config import Config, RolloutArmConfig
from policies.limits.price import Price


class CopyPrices:
    """The prices of a configuration's models."""

    def __init__(self) -> None:
        self._prices: Mapping[str, Price] = {}

    def configure(self, config: Config) -> None:
        """Apply a configuration."""
        self._prices = {model.name: Price(model.price) for model in config.models if model.price is not None}

    def of(self, model: str, to: RolloutArmConfig) -> Price | None:
        """The price of an answer of a target: its model's, or that of the route's `model`. None if it has none."""
        return self._prices.get(to.model or model)
