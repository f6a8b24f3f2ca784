"""The guards of one request on its path: the prompt before it is sent, the answer before anybody reads it.

Guards that compare texts examine a prompt before anything is reserved. Those that judge cost time and models' calls, so
they judge a reserved request: one that its limits refuse costs none.
"""

from __future__ import annotations

from collections.abc import Awaitable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from adapters.answer import Answer
from adapters.errors import InferenceError
from adapters.requests import ModelRequest, ResponsesRequest
from adapters.wire.native_chat import NativeChat
from config.schema.guards import Side
from gateway.features.guards import answers, prompts
from gateway.features.guards.personal import PersonalKeys, PersonalTexts
from gateway.features.guards.replaced import ReplacedPrompt, has_text, instead, without_prompt
from gateway.features.guards.streams import MonitoredStream, PieceReader, TextsGuard, reader_of
from gateway.features.guards.table import GuardSet, GuardTable
from gateway.features.guards.verdicts import SideGuard, TextsOf
from gateway.request.client_exchange import ClientExchange
from gateway.request.spine import Exchange, Observer
from gateway.traffic.guarded.guard import ContentReplaced
from policies.routing.decision import Decision

if TYPE_CHECKING:
    from gateway.features.guards.recognition import Recognition  # only for guards with a recogniser


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
        one = _GuardedRequest(guards, self._table.keys, exchange)
        exchange.observers = tuple(one if each is self else each for each in exchange.observers)
        return one.examine(exchange)


class _GuardedRequest(Observer):
    """One request and its answer."""

    __slots__ = ("_answer", "_personal", "_prompt", "_recognition", "_replaces")

    def __init__(self, guards: GuardSet, keys: PersonalKeys, exchange: ClientExchange) -> None:
        """Raises `CallerError` for a response whose personal data cannot be opened."""
        record = exchange.record
        self._prompt = self._side(guards, "prompt", exchange)
        self._answer = self._side(guards, "answer", exchange)
        self._replaces = guards.replaces
        self._personal: PersonalTexts | None = None
        self._recognition: Recognition | None = None
        named = {kind: each.place for each in guards.recognisers if each.guard.restores for kind in each.kinds}
        if (guards.personal or named) and self._prompt is not None:
            self._personal = PersonalTexts(guards.guards, guards.personal, keys, record, named)
            self._prompt.personal = self._personal
            record.withheld = True
        if guards.recognisers and self._prompt is not None:
            from gateway.features.guards.judges.base import GuardCalls
            from gateway.features.guards.recognition import Recognition

            calls = GuardCalls(exchange, "prompt")
            self._recognition = Recognition(guards.recognisers, self._prompt, self._personal, calls)

    def _side(self, guards: GuardSet, side: Side, exchange: ClientExchange) -> SideGuard | None:
        guard = guards.side(side, exchange.record)
        if guard is not None and (judges := guards.judges.get(side)):
            from gateway.features.guards.judges.base import GuardCalls
            from gateway.features.guards.judges.panel import Panel

            guard.panel = Panel(judges, guard, GuardCalls(exchange, side))
        return guard

    async def examine(self, exchange: ClientExchange) -> None:
        """Examine the prompt before it is reserved. Raises `ContentFiltered` and `Unsupported`."""
        if self._recognition is not None:  # it calls models
            exchange.judge = partial(self._examine_reserved, exchange)
        elif await self._examine(exchange) and (to := self._target(exchange)) is not None:
            exchange.move_to(to)

    async def _examine_reserved(self, exchange: ClientExchange) -> None:
        """The same for a reserved request. Raises what a client's own excess raises, and `GuardFailed`."""
        exchange.request = exchange.received
        if await self._examine(exchange):
            await exchange.rewrite_reserved()
            if (to := self._target(exchange)) is not None:
                await exchange.move_reserved(to)

    def _target(self, exchange: ClientExchange) -> str | None:
        """The model to which the prompt is sent now; None for none, and if guards that judge decide it."""
        guard = self._prompt
        return guard.to if guard is not None and guard.panel is None and exchange.routes == 1 else None

    async def _examine(self, exchange: ClientExchange) -> bool:
        """Whether the prompt passes; False if a text of a guard is the answer."""
        try:
            request = await self._passed(exchange.request)
        except ContentReplaced as error:
            self._replace(exchange, error)
            return False
        judged = request
        restores = self._personal is not None and self._restores(exchange, self._personal)
        if restores or (self._answer is not None and self._answer.acts):
            panel = None if self._answer is None else self._answer.panel
            request = _readable(request, whole=self._replaces or (panel is not None and bool(panel.of_wholes)))
        exchange.request = exchange.received = request
        if self._prompt is not None and self._prompt.panel is not None:
            exchange.judge = partial(self._judge, exchange, judged, self._prompt)
        return True

    async def _passed(self, request: ModelRequest) -> ModelRequest:
        """The request that may be sent, or be judged."""
        guard = self._prompt
        if guard is None:
            return request
        examine = partial(prompts.guarded, guard=guard) if self._recognition is None else self._recognition.guarded
        if guard.acts:
            return await examine(request)
        with suppress(InferenceError):  # what cannot be read is not counted
            await examine(request)
        return request

    async def _judge(self, exchange: ClientExchange, request: ModelRequest, guard: SideGuard) -> None:
        """Judge the reserved prompt. Raises `ContentFiltered`, `GuardFailed`, `Unsupported` and what a client's own
        excess raises."""
        if not guard.acts:
            with suppress(InferenceError):
                await _judged(request, guard)
            return
        try:
            await _judged(request, guard)
        except ContentReplaced as error:
            self._replace(exchange, error)
            return
        if guard.to is not None and exchange.routes == 1:
            await exchange.move_reserved(guard.to)

    def _replace(self, exchange: ClientExchange, error: ContentReplaced) -> None:
        """Let the text of a guard be the answer. Raises the error itself where no text can be it."""
        if not has_text(exchange.request):
            raise error
        exchange.request = exchange.received = without_prompt(exchange.request)
        exchange.upstream, self._answer, exchange.last = ReplacedPrompt(error.text), None, None

    @staticmethod
    def _restores(exchange: ClientExchange, personal: PersonalTexts) -> bool:
        """Whether the answer receives values again."""
        record = exchange.record
        if not personal.has_values:
            return False
        record.masked = personal
        if record.stored:
            personal.check_storage()
            record.personal = personal
        exchange.last = lambda answer: personal.restored(exchange.request, answer)
        return True

    def failed(self, exchange: Exchange, error: BaseException) -> None:
        if self._personal is not None:
            self._personal.clean(error)

    def answered(self, exchange: Exchange, answer: Answer) -> Awaitable[Answer] | None:
        if self._answer is None:
            return None
        examine = _guarded if self._answer.acts else _monitored
        return examine(exchange.request, answer, self._answer)


async def _judged(request: ModelRequest, guard: SideGuard) -> None:
    """Let models judge what the other guards let pass. Raises `ContentFiltered` and `GuardFailed`."""
    if guard.panel is not None:
        collected = TextsOf(guard)
        await prompts.guarded(request, collected)
        await guard.panel.examine(collected.texts)


def _readable(request: ModelRequest, *, whole: bool) -> ModelRequest:
    """A request whose stream, or also whose `whole` answer, is a chat's, which guards read. Raises `CallerError` if no
    chat is equivalent."""
    if isinstance(request, NativeChat) and (request.stream or whole) and not request.payload.reworded:
        return replace(request, payload=request.payload.with_fields(dict(request.fields)))
    return request


async def _monitored(request: ModelRequest, answer: Answer, guard: SideGuard) -> Answer:
    """The same answer, examined. What cannot be read is not counted."""
    if answer.body is None:
        reader = reader_of(request, answer, guard) or _native_reader(request, answer, guard)
        return answer if reader is None else MonitoredStream(answer, reader)
    with suppress(InferenceError):
        await answers.guarded(request, answer, guard)
        await _judged_answer(request, answer, guard)
    return answer


def _native_reader(request: ModelRequest, answer: Answer, guard: SideGuard) -> PieceReader | None:
    """What reads a stream in the format of its server, if it is one of a known API."""
    if "event-stream" not in answer.content_type:
        return None
    from gateway.features.guards.natives import native_reader_of

    return native_reader_of(request, answer.form, TextsGuard(guard))


async def _judged_answer(request: ModelRequest, answer: Answer, guard: SideGuard) -> None:
    """Let models judge a whole answer. Raises `ContentFiltered` and `GuardFailed`."""
    if (panel := guard.panel) is not None:
        collected = TextsOf(guard)
        await answers.guarded(request, answer, collected)
        await panel.examine(collected.texts)
        if panel.of_wholes and (has_text(request) or isinstance(request, ResponsesRequest)):
            await panel.examine(answers.contents(answer), whole=True)


async def _guarded(request: ModelRequest, answer: Answer, guard: SideGuard) -> Answer:
    """The answer behind its guards. Raises `ContentFiltered` and `Unsupported`; the answer is closed then."""
    try:
        if answer.body is not None:
            guarded = await answers.guarded(request, answer, guard)
            await _judged_answer(request, guarded, guard)
            return guarded
        reader = reader_of(request, answer, guard)
        if reader is None:
            raise guard.unreadable("streams of this kind: request a whole answer")
        return await reader.begun()
    except ContentReplaced as error:
        await answer.aclose()
        return instead(request, answer, error)
    except BaseException:
        await answer.aclose()
        raise
