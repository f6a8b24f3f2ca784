"""What all requests share, behind every front."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from random import Random
from typing import Any

from msgspec.structs import replace

from adapters import statuses
from adapters.base import Answer, as_inference_error
from adapters.call import Call
from adapters.errors import InferenceError, NotFound, Unsupported
from adapters.requests import ModelOrder, ModelQuery, ModelRequest
from adapters.types import Deadline
from gateway.auth.keys import Principal
from gateway.limits.ledger import Ledger
from gateway.limits.memory import Memory
from gateway.request.client_exchange import ClientExchange
from gateway.request.path_parts import deadline_of
from gateway.request.services import Services
from gateway.request.snapshot import Snapshot
from gateway.request.spine import Observer
from gateway.telemetry import Record, Telemetry

Watcher = Callable[[ClientExchange], Observer | None]
"""Returns the observer of a request that a feature watches."""

ORDER_SECONDS = 600.0
"""The time in which a server must load a model."""


class Core(Services):
    """The shared state of all requests. Reloads replace `snapshot` and preserve the rest."""

    def __init__(
        self,
        snapshot: Snapshot,
        ledger: Ledger,
        telemetry: Telemetry,
        rng: Random,
        clock: Callable[[], float],
        wall: Callable[[], float] = time.time,
        memory: Memory | None = None,
    ) -> None:
        super().__init__(ledger, rng, clock, wall)
        self.snapshot = snapshot
        self.telemetry = telemetry
        self.memory = memory or Memory(snapshot.config.http)
        self.watchers: tuple[Watcher, ...] = ()
        """Empty unless spans or traffic are recorded."""

    def handle(
        self, principal: Principal, request: ModelRequest, headers: Mapping[str, str], record: Record
    ) -> Coroutine[Any, Any, Answer]:
        """Return the answer to an authenticated request when it begins.

        A failure before that is raised, and the front ends the exchange. An answer that has begun ends the exchange
        itself: whole, broken or cancelled.
        """
        exchange = ClientExchange(self, self.snapshot, principal, request, headers, record, self.end)
        for watch in self.watchers:
            if (observer := watch(exchange)) is not None:
                exchange.observers += (observer,)
        return exchange.answer()

    async def look_up(self, principal: Principal, query: ModelQuery, headers: Mapping[str, str]) -> Answer:
        """A query of the gateway's own to the server of a model. It is neither charged nor logged."""
        now = self.clock()
        record = Record("", "models", "", now)
        exchange = ClientExchange(self, self.snapshot, principal, query, headers, record, self.end)
        exchange.decide()
        deadline = deadline_of(exchange.decision.timeout, query, now)
        models = exchange.plan.caller(exchange)
        call = Call(deadline, "", principal.tenant, principal.key_id, headers, models=models)
        return await exchange.upstream.call(exchange.request, call)

    async def order(self, order: ModelOrder) -> None:
        """Forward an order to every endpoint of every pool that a route of its model leads to, all at once.

        Only the admin listener gives orders: there is no tenant. Raises the first failure when all calls have ended.
        """
        snapshot, now = self.snapshot, self.clock()
        model = snapshot.catalogue.find(order.model)
        if model is None:
            raise NotFound(f"The model `{order.model[:128]}` does not exist.", param="model")
        order = replace(order, model=model.name or order.model)
        if model.rules.model in snapshot.pipelines:
            raise Unsupported("A pipeline has no servers of its own: order the models of its steps.", param="model")
        routes = next(m.routes for m in snapshot.config.models if m.name == model.rules.model)
        pools = dict.fromkeys(pool for route in routes for pool in route.pools())
        deadline = Deadline(now + ORDER_SECONDS, ORDER_SECONDS, ORDER_SECONDS)
        endpoints = [endpoint for pool in pools for endpoint in snapshot.pools[pool].endpoints]
        calls = [endpoint.adapter.call(order, Call(deadline)) for endpoint in endpoints]
        ends = await asyncio.gather(*calls, return_exceptions=True)
        for endpoint, end in zip(endpoints, ends, strict=True):
            if isinstance(end, BaseException):
                raise endpoint.scrubber.error(end)

    def storage_quota(self, tenant: str) -> int:
        """The most bytes that a tenant stores. One that has left the file stores nothing more."""
        standing = self.snapshot.standings.get(tenant)
        return 0 if standing is None else standing.storage_quota

    def end(self, record: Record, error: BaseException | None = None, status: int | None = None) -> None:
        """End an exchange: the one place for responses, failures, cancellations and streams of every front.

        `status` is the status that the client received, if that is not the status of the error. Only the first call
        counts.
        """
        now = self.clock()
        if record.early is not None:
            record.early.undo(now)
            record.early = None
        failure = None if error is None else as_inference_error(error) or internal_error()
        if status is None:
            status = 200 if failure is None else statuses.http_status(failure)
        self.telemetry.end(record, failure, status, now)


def internal_error() -> InferenceError:
    """The error that a client receives for a defect of the gateway."""
    return InferenceError("The gateway failed on this request.")
