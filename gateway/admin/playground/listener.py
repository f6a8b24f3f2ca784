"""The Unix socket on which a process that serves clients receives the console's requests to models."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from adapters.call import StepTrace
from adapters.errors import CredentialError
from adapters.http1.budget import Budget
from adapters.http1.host import Limits
from adapters.http1.message import Request, Response
from adapters.http1.server import Server
from gateway.admin.playground.caller import HEADER, decode_caller
from gateway.auth.keys import Principal
from gateway.fronts.door import Door
from gateway.fronts.errors import openai_refusal
from gateway.fronts.listener import Fronts
from gateway.request.core import Core
from gateway.telemetry import Record

MOST_RECORDS = 64
OUTCOMES = b"/outcomes/"
MOST_CONNECTIONS = 64


class PlaygroundDoor(Door):
    """Authenticates by the header that only the gateway's own processes can send."""

    def __init__(self, core: Core) -> None:
        super().__init__(core)
        self._records: dict[str, Record] = {}

    def record(self, headers: Mapping[str, str], operation: str, peer: str) -> Record:
        """The record of a new request, which is stored for `outcome`."""
        record = super().record(headers, operation, peer)
        if len(self._records) >= MOST_RECORDS:
            del self._records[next(iter(self._records))]
        self._records[record.request_id] = record
        return record

    def outcome(self, id: str) -> dict[str, Any] | None:
        """The outcome of a request that has ended; None if it has not, or if it is no longer stored."""
        record = self._records.get(id)
        return outcome_of(record) if record is not None and record.ended else None

    def _authenticate(self, http: Request, record: Record) -> Principal:
        principal = decode_caller(http.headers.get(HEADER))
        if principal.tenant not in {tenant.name for tenant in self.core.snapshot.config.tenants}:
            raise CredentialError("the tenant of the session is not in the configuration").because("tenant_removed")
        record.hold(principal)
        return principal


def outcome_of(record: Record) -> dict[str, Any]:
    """The outcome of a request: where it went, how long it took, and its usage and cost."""
    trace, usage, error = record.trace, record.usage, record.error
    first = trace.first_chunk
    return {
        "id": record.request_id,
        "tenant": record.tenant,
        "model": record.model,
        "pool": record.pool,
        "endpoint": record.endpoint,
        "arm": record.arm,
        "status": record.status,
        "attempts": len(trace.attempts),
        "seconds": record.ended - record.started,
        "first_chunk_seconds": first - record.started if first else None,
        "queue_seconds": trace.queue_seconds,
        "overhead_seconds": record.overhead if first else None,
        "prompt_tokens": usage.prompt_tokens if usage is not None else None,
        "completion_tokens": usage.completion_tokens if usage is not None else None,
        "rows": usage.rows if usage is not None else None,
        "cost": str(record.cost) if record.cost is not None else None,
        "error": error.code if error is not None else None,
        "steps": [_step(step) for step in trace.steps or ()],
    }


def _step(step: StepTrace) -> dict[str, Any]:
    return {
        "pipeline": step.pipeline,
        "step": step.name,
        "outcome": step.outcome,
        "seconds": step.seconds,
        "endpoint": step.endpoint or None,
        "cost": str(step.cost) if step.cost is not None else None,
        "error": step.error,
    }


class PlaygroundListener:
    """`listen`, then `drain` and `aclose`. Only this user can connect to the socket."""

    def __init__(self, core: Core, max_body: int, memory: Budget) -> None:
        self._door = PlaygroundDoor(core)
        self._fronts = Fronts(self._door)
        limits = Limits(max_body=max_body, max_connections=MOST_CONNECTIONS)
        self._server = Server(self._answer, limits, openai_refusal, memory)

    async def listen(self, path: str | Path) -> None:
        """Listen."""
        await self._server.listen_unix(path)

    async def drain(self, seconds: float) -> bool:
        """Stop accepting and wait for requests. True if all ended within `seconds`."""
        return await self._server.drain(seconds)

    async def aclose(self) -> None:
        """Stop at once."""
        await self._server.aclose()

    async def _answer(self, http: Request) -> Response:
        if not http.target.startswith(OUTCOMES):
            return await self._fronts(http)
        outcome = self._door.outcome(http.target[len(OUTCOMES) :].decode("latin-1"))
        if outcome is None:
            return Response(404)
        return Response(200, [("content-type", "application/json")], msgspec.json.encode(outcome))
