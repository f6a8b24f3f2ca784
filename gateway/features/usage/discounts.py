"""Discounts of invoices by the tokens of a tenant in a month."""

from collections.abc import Mapping

from config.schema.config import Config
from config.schema.money import VolumeConfig

_MILLION = 10**6
Volumes = Mapping[str, tuple[VolumeConfig, ...]]
"""By model, as configured."""


def volumes_of(config: Config) -> Volumes:
    """The discounts of the models that have some."""
    return {model.name: model.price.volume for model in config.models if model.price is not None and model.price.volume}


def discount(volumes: tuple[VolumeConfig, ...], tokens: int, picos: int) -> int:
    """The picos that a month of one tenant and model costs less, rounded down.

    Each token of the month bears the same part of the amount; those beyond a number bear its discount.
    """
    if not tokens:
        return 0
    steps = sorted(volumes, key=lambda volume: volume.above)
    ends = [volume.above for volume in steps[1:]] + [max(tokens, steps[-1].above if steps else 0)]
    reduced = 0
    for volume, end in zip(steps, ends, strict=False):
        within = max(0, min(tokens, end) - volume.above)
        reduced += within * round(volume.discount * _MILLION)
    return picos * reduced // (tokens * _MILLION)
