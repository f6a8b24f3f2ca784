"""Targets of requests: a pool, or a split between several, each with fallbacks.

A route, an arm of a split and an entry of a fallback are each a target, nested to any depth. A target contains its
nested targets and names only pools, so no cycle is possible.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator
from pydantic.json_schema import JsonSchemaValue

from config.schema.section import Conflict, Section, ShortSection
from config.schema.text import Name, Shape

Sticky = Annotated[
    str,
    Shape(
        r"user|key|tenant|request|header:[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}",
        "user, key, tenant, request or header:NAME",
    ),
]
Failure = Literal["capacity", "backend", "transport", "timeout", "context_length", "filtered"]
ANOTHER_MAY_DO: tuple[Failure, ...] = ("capacity", "backend", "transport")


def share_of_requests(share: float) -> float:
    """Check a share. Raises ``ValueError``."""
    if not 0 < share <= 1:
        raise ValueError("a share is over 0% and at most 100%")
    return share


def small_alpha(alpha: float) -> float:
    """Check a probability of a false alarm. Raises ``ValueError``."""
    if not 0.0001 <= alpha <= 0.2:
        raise ValueError("alpha is from 0.01% to 20%: the probability of a false alarm, over the whole rollout")
    return alpha


class SplitConfig(Section):
    """Weighted choice between targets. The same subject always gets the same arm."""

    sticky: Sticky = "request"
    """Subject that keeps its arm: ``user`` (the request's user field, else the key), ``key``, ``tenant`` or
    ``header:NAME``; or ``request``, a new random choice for each request."""
    arms: tuple[ArmConfig, ...] = Field(min_length=2)
    """Targets with their weights."""

    @model_validator(mode="after")
    def _weights(self) -> Self:
        if not any(arm.weight for arm in self.arms):
            raise ValueError("all weights are 0: give at least one arm a share")
        return self


class TargetConfig(Section):
    """A pool, or a split."""

    pool: Name | None = None
    """Pool that receives the requests."""
    split: SplitConfig | None = None
    """Several targets by weight, instead of ``pool``."""
    fallback: tuple[FallbackConfig, ...] = ()
    """Targets to try when that fails, in this order."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.pool is None) == (self.split is None):
            raise ValueError("has one target: give pool or split")
        return self

    def pools(self) -> tuple[str, ...]:
        """Every pool that the target can reach, in the order of the file, without duplicates."""
        return tuple(dict.fromkeys(_pools(self)))


class ArmConfig(TargetConfig):
    """One arm of a split."""

    name: Name | None = None
    """Name of the arm in logs, metrics and ``x-headrace-arm``; the pool's name when absent. Sticky choices depend on
    it."""
    weight: float = Field(ge=0)
    """Share of the requests, relative to the other arms; 0 disables an arm."""

    @model_validator(mode="after")
    def _named(self) -> Self:
        if self.pool is None and self.name is None:
            raise ValueError("an arm that is a split needs a name")
        return self

    @property
    def label(self) -> str:
        """The name of the arm; by default, of its pool."""
        return self.name or self.pool or ""


class FallbackConfig(ShortSection, TargetConfig):
    """A target to try after a failure. A pool's name alone is short for ``{pool: NAME}``."""

    short = "pool"
    short_schema: ClassVar[JsonSchemaValue] = {"type": "string", "description": "A pool's name."}

    on: tuple[Failure, ...] = Field(ANOTHER_MAY_DO, min_length=1)
    """Failures after which it is tried. ``capacity``: full, or no healthy endpoint. ``backend``: the server failed.
    ``transport``: unreachable or broken. ``timeout``: silent. ``transport`` includes a timeout, unless the server may
    still write a text. ``context_length``: the prompt is too long for the model. ``filtered``: the provider refuses
    the content, or its filter ends the answer before anything is written. Other errors of the client never fall back.
    """

    def conflicts(self) -> Iterator[Conflict]:
        if {"transport", "timeout"} <= set(self.on):
            yield Conflict(("on",), "lists timeout without effect: transport includes it", concerns_value=True)


def _pools(target: TargetConfig) -> Iterator[str]:
    if target.pool is not None:
        yield target.pool
    for arm in target.split.arms if target.split else ():
        yield from _pools(arm)
    for entry in target.fallback:
        yield from _pools(entry)


SplitConfig.model_rebuild()
TargetConfig.model_rebuild()
