"""The guards of one request on its path: the prompt before anything is reserved, the answer before anybody reads it."""

from collections.abc import Awaitable
from contextlib import suppress

from msgspec.structs import replace

from adapters.answer import Answer
from adapters.errors import InferenceError
from adapters.requests import ModelRequest
from adapters.wire.native_chat import NativeChat
from gateway.features.guards import answers, prompts
from gateway.features.guards.streams import MonitoredStream, reader_of
from gateway.features.guards.table import GuardSet, GuardTable
from gateway.features.guards.verdicts import SideGuard
from gateway.request.client_exchange import ClientExchange
from gateway.request.spine import Exchange, Observer
from gateway.telemetry.record import Record
from policies.routing.decision import Decision


class Guards(Observer):
    """Guards the requests of clients on the routes of a configuration."""

    __slots__ = ("_table",)

    def __init__(self, table: GuardTable) -> None:
        self._table = table

    def watch(self, decision: Decision) -> Observer | None:
        """The observer of a route; None for a route without a guard."""
        return self if self._table.has(decision) else None

    def decided(self, exchange: Exchange) -> Awaitable[None] | None:
        assert isinstance(exchange, ClientExchange)  # the steps of pipelines have no observers of clients
        principal = exchange.principal
        guards = self._table.find(exchange.decision, principal.tenant, principal.roles, principal.key_id)
        if guards is None:
            return None
        one = _GuardedRequest(guards, exchange.record)
        exchange.observers = tuple(one if each is self else each for each in exchange.observers)
        return one.examine(exchange)


class _GuardedRequest(Observer):
    """One request and its answer."""

    __slots__ = ("_answer", "_prompt")

    def __init__(self, guards: GuardSet, record: Record) -> None:
        self._prompt = guards.side("prompt", record)
        self._answer = guards.side("answer", record)

    async def examine(self, exchange: ClientExchange) -> None:
        """Examine the prompt. Raises `ContentFiltered` and `Unsupported`."""
        request = exchange.request
        if self._prompt is not None and self._prompt.acts:
            request = await prompts.guarded(request, self._prompt)
        elif self._prompt is not None:
            with suppress(InferenceError):  # what cannot be read is not counted
                await prompts.guarded(request, self._prompt)
        if self._answer is not None and self._answer.acts:
            request = _readable(request)
        exchange.request = exchange.received = request

    def answered(self, exchange: Exchange, answer: Answer) -> Awaitable[Answer] | None:
        if self._answer is None:
            return None
        examine = _guarded if self._answer.acts else _monitored
        return examine(exchange.request, answer, self._answer)


def _readable(request: ModelRequest) -> ModelRequest:
    """A request whose stream has the events of a chat, which guards read. Raises `CallerError` if no chat is
    equivalent."""
    if isinstance(request, NativeChat) and request.stream and not request.payload.reworded:
        return replace(request, payload=request.payload.with_fields(dict(request.fields)))
    return request


async def _monitored(request: ModelRequest, answer: Answer, guard: SideGuard) -> Answer:
    """The same answer, examined. What cannot be read is not counted."""
    if answer.body is None:
        reader = reader_of(request, answer, guard)
        return answer if reader is None else MonitoredStream(answer, reader)
    with suppress(InferenceError):
        await answers.guarded(request, answer, guard)
    return answer


async def _guarded(request: ModelRequest, answer: Answer, guard: SideGuard) -> Answer:
    """The answer behind its guards. Raises `ContentFiltered` and `Unsupported`; the answer is closed then."""
    try:
        if answer.body is not None:
            return await answers.guarded(request, answer, guard)
        reader = reader_of(request, answer, guard)
        if reader is None:
            raise guard.unreadable("streams of this kind: request a whole answer")
        return await reader.begun()
    except BaseException:
        await answer.aclose()
        raise
