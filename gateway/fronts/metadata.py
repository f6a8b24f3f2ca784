"""A cache of the metadata of models of tensors, for fronts that convert other forms to tensors."""

import asyncio
from collections import OrderedDict
from collections.abc import Mapping

from adapters.errors import BackendError, LimitExceeded
from adapters.requests import ModelQuery
from adapters.wire.oip import bodies as oip_bodies
from adapters.wire.oip.bodies import ModelMetadata
from gateway.auth.keys import Principal
from gateway.request.core import Core
from policies.limits.limits import TokenBucket

FRESH_SECONDS = 30.0
MAX_CACHED = 4096
LOOK_UPS = (100, 10.0)
"""The limit of look-ups of one tenant: a number, and the seconds in which they are allowed."""

_Key = tuple[str, str, str]


class Metadata:
    """Metadata by tenant, model and version, as rules may route two tenants to different servers."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._budgets: dict[str, TokenBucket] = {}
        self._cached: OrderedDict[_Key, tuple[float, asyncio.Task[ModelMetadata]]] = OrderedDict()

    async def of(
        self,
        principal: Principal,
        model: str,
        version: str,
        headers: Mapping[str, str],
        max_age: float = FRESH_SECONDS,
    ) -> ModelMetadata:
        """The metadata of a model. Simultaneous requests share one call. Raises `InferenceError`."""
        key, now = (principal.tenant, model, version), self._core.clock()
        at, fetching = self._cached.get(key, (0.0, None))
        if fetching is None or now - at > max_age or (fetching.done() and _failed(fetching)):
            self._spend(principal.tenant, now)
            fetching = asyncio.create_task(self._fetch(principal, model, version, headers))
            fetching.add_done_callback(_failed)
            self._cached[key] = (now, fetching)
            self._cached.move_to_end(key)
            if len(self._cached) > MAX_CACHED:
                self._cached.popitem(last=False)
        return await asyncio.shield(fetching)

    def _spend(self, tenant: str, now: float) -> None:
        """Count a look-up. Look-ups are not charged, so their rate is limited. Raises `LimitExceeded`."""
        budget = self._budgets.get(tenant)
        if budget is None:
            budget = self._budgets[tenant] = TokenBucket(*LOOK_UPS, now)
        if wait := budget.take(1, now):
            message = "Metadata of too many different models and versions was requested. Try again later."
            raise LimitExceeded(message, limit="requests", retry_after=wait)

    async def _fetch(self, principal: Principal, model: str, version: str, headers: Mapping[str, str]) -> ModelMetadata:
        answer = await self._core.look_up(principal, ModelQuery(model=model, version=version), headers)
        if answer.body is None:
            await answer.aclose()
            raise BackendError("The upstream answered a metadata request with a stream.", code="upstream_bad_response")
        return oip_bodies.decode_metadata(answer.body)


def _failed(task: asyncio.Task[ModelMetadata]) -> bool:
    """Whether a task has failed. Reading the exception also prevents asyncio from logging it."""
    return task.cancelled() or task.exception() is not None
