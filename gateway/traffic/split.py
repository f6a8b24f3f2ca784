"""A choice between upstreams inside a fallback, made when the fallback reaches it."""

from collections.abc import Mapping
from random import Random

from adapters.base import Answer, Upstream
from adapters.call import Call
from adapters.requests import ModelRequest
from policies.routing import target
from policies.routing.split import arm_for


class SplitUpstream:
    """An `Upstream` that routes each request to one of its arms, and a subject always to the same arm."""

    def __init__(self, split: target.Split, arms: Mapping[str, Upstream], rng: Random) -> None:
        self._split = split
        self._arms = arms
        self._rng = rng

    async def call(self, request: ModelRequest, call: Call) -> Answer:
        split = self._split
        arm = arm_for(split.sticky, request, call, split.salt, split.arms, self._rng)
        return await self._arms[arm].call(request, call)
