"""A choice between upstreams inside a fallback, made when the fallback reaches it."""

from collections.abc import Mapping
from random import Random
from typing import TYPE_CHECKING

from adapters.base import Answer, Upstream
from adapters.call import Call
from adapters.requests import ModelRequest
from policies.routing import decision
from policies.routing.rules import choice_of

if TYPE_CHECKING:  # for splits that are balanced
    from policies.routing.arm_balance import ArmStates


class SplitUpstream:
    """An `Upstream` that routes each request to one of its arms, and a subject always to the same arm."""

    def __init__(
        self, split: decision.Split, arms: Mapping[str, Upstream], rng: Random, states: "ArmStates | None" = None
    ) -> None:
        self._choose = choice_of(split, states)
        self._arms = [arms[name] for name, _ in split.arms]
        self._rng = rng

    async def call(self, request: ModelRequest, call: Call) -> Answer:
        return await self._arms[self._choose(request, call, self._rng)].call(request, call)
