"""The statistics of every model of tensors that a client may use, as its servers report them."""

import asyncio
from collections.abc import Mapping
from typing import Any

from adapters.errors import InferenceError, LimitExceeded
from adapters.requests import ModelQuery
from adapters.wire.oip import bodies as oip_bodies
from gateway.auth.keys import Principal
from gateway.fronts import tensors
from gateway.fronts.door import Door

AT_ONCE = 16
"""Maximum of concurrent queries to the servers of one client's models."""
LONGEST = 10.0
"""Seconds that the statistics wait for the servers of one model."""


async def statistics(door: Door, principal: Principal, headers: Mapping[str, str]) -> list[dict[str, Any]]:
    """One object with `model_stats` for each model. A model without a response or without statistics is omitted."""
    places = asyncio.Semaphore(AT_ONCE)

    async def of(name: str) -> dict[str, Any] | None:
        query = ModelQuery(model=name, about="stats", timeout=LONGEST)
        try:
            async with places:
                answer = await door.core.look_up(principal, query, headers)
            return oip_bodies.decode_response_object(answer.body or b"")
        except LimitExceeded:
            raise
        except InferenceError:
            return None

    names = dict.fromkeys(entry.name for entry in tensors.listed(door, principal) if entry.state == "READY")
    responses = await asyncio.gather(*map(of, names))
    return [response for response in responses if response is not None]
