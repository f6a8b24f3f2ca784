"""A stream of a generated text behind a guard: text leaves when the windows that hold it have passed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec

from adapters.answer import Answer
from adapters.errors import StepFailed
from adapters.stream import Stream
from adapters.wire import sse
from adapters.wire.openai.chat_reader import answer_text
from gateway.features.pipelines.guards.examiner import Examiner
from gateway.features.pipelines.scope import StepScope
from gateway.traffic.generated_text import Object, events_of
from policies.pipelines.window import GuardWindow, HeldToolCalls, ToolCallOverflowError

_TEXTS = ("content", "reasoning", "reasoning_content", "refusal")
"""The texts of a delta, each guarded by separate windows."""
_HEAD = ("id", "object", "created", "model", "system_fingerprint", "service_tier")
_CALLS = {"function": "arguments", "custom": "input"}
"""The kinds of tool calls, and the field of each that holds the argument."""
_OLDER = -1
"""The index of a `function_call`."""
_DONE = b"data: [DONE]\n\n"
MAX_CHOICES = 128

_encode = msgspec.json.Encoder().encode


class _GuardedChoice:
    """One choice of a stream: a window for each of its texts, and its tool calls."""

    def __init__(self, window: int, overlap: int) -> None:
        self.calls = HeldToolCalls()
        self.call_deltas: list[Object] = []
        self.has_role = False
        self.ended = False
        self._sizes = window, overlap
        self._windows: dict[str, GuardWindow] = {}

    def window(self, name: str) -> GuardWindow:
        """The window of one text."""
        if name not in self._windows:
            self._windows[name] = GuardWindow(*self._sizes)
        return self._windows[name]

    def windows(self) -> list[tuple[str, GuardWindow]]:
        """All windows, by the name of their text."""
        return list(self._windows.items())


class GuardedStream(Stream):
    """Reads the events of a chat or a completion, and writes new events with the released texts.

    Only known fields are written, without log-probabilities, so that no field can carry text past the guard. Tool calls
    are held until the choice ends. A block ends the stream with an error and cancels the upstream.
    """

    __slots__ = ("_choices", "_examiner", "_head", "_inner", "_is_chat", "_out", "_scope", "_tolerant")

    def __init__(self, inner: Answer, examiner: Examiner, scope: StepScope, *, tolerant: bool) -> None:
        super().__init__(content_type=inner.content_type, usage=inner.usage, status=inner.status, form=inner.form)
        self.pool, self.endpoint, self.headers = inner.pool, inner.endpoint, inner.headers
        self._inner = inner
        self._examiner = examiner
        self._scope = scope
        self._tolerant = tolerant
        self._choices: dict[int, _GuardedChoice] = {}
        self._head: Object = {}
        self._is_chat = True
        self._out: list[bytes] = []
        inner.when_ended(self._take_usage)

    def _take_usage(self, inner: Answer, _: BaseException | None) -> None:
        self.usage = inner.usage

    async def _next(self, patience: float | None = None) -> bytes:
        while not self._out:
            try:
                piece = await self._inner.__anext__()
            except StopAsyncIteration:
                await self._end_all()
                if not self._out:
                    raise
                break
            await self._take_piece(piece)
        out, self._out = b"".join(self._out), []
        return out

    async def _drop(self) -> None:
        await self._inner.aclose()

    async def _take_piece(self, piece: bytes) -> None:
        for event, body in events_of(piece):
            if body is not None:
                await self._take_event(body)
            elif event == _DONE:
                await self._end_all()
                self._out.append(_DONE)

    async def _take_event(self, body: Object) -> None:
        self._head = {name: body[name] for name in _HEAD if name in body} or self._head
        choices = body.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict):
                await self._take_choice(choice)
        if body.get("usage") is not None:
            self._out.append(sse.encode(_encode({**self._head, "choices": [], "usage": body["usage"]})))

    async def _take_choice(self, choice: Object) -> None:
        index = _index(choice, 0)
        if index not in self._choices and len(self._choices) >= MAX_CHOICES:
            raise StepFailed("The answer has more choices than a guard examines.", step=self._scope.path)
        guarded = self._choices.setdefault(index, _GuardedChoice(self._examiner.window, self._examiner.overlap))
        self._is_chat = "text" not in choice
        delta = choice.get("delta")
        texts = delta if isinstance(delta, dict) else {"content": choice.get("text")}
        for name in _TEXTS:
            given = texts.get(name)
            if text := given if isinstance(given, str) else answer_text(given):
                guarded.window(name).feed(text)
                await self._release(index, name, guarded.window(name))
        self._hold_calls(guarded, texts)
        if choice.get("finish_reason") is not None:
            await self._end(index, guarded)
            self._write(index, {}, str(choice["finish_reason"]))

    def _hold_calls(self, guarded: _GuardedChoice, delta: Object) -> None:
        calls = delta.get("tool_calls")
        for place, call in enumerate(calls if isinstance(calls, list) else ()):
            if isinstance(call, dict):
                index = _index(call, place)
                held: Object = {"index": index, **_only(call, "id", "type")}
                for kind, argument in _CALLS.items():
                    if isinstance(part := call.get(kind), dict):
                        held[kind] = self._held(guarded, index, part, argument)
                guarded.call_deltas.append({"tool_calls": [held]})
        if isinstance(part := delta.get("function_call"), dict):  # OpenAI's older form of the only call
            guarded.call_deltas.append({"function_call": self._held(guarded, _OLDER, part, "arguments")})

    def _held(self, guarded: _GuardedChoice, index: int, part: Object, argument: str) -> Object:
        """A part of a call that is held, with its known fields only."""
        fields = {name: _text(part[name]) for name in ("name", argument) if part.get(name) is not None}
        try:
            guarded.calls.feed(index, fields.get("name", ""), fields.get(argument, ""))
        except ToolCallOverflowError as error:
            raise StepFailed(f"A guard cannot hold the answer: {error}.", step=self._scope.path) from None
        return fields

    # ── releases ──────────────────────────────────────────────────────────────────────────────────────

    async def _release(self, index: int, name: str, window: GuardWindow) -> None:
        """Examine the windows that are due, and write the text that passed."""
        async for text in self._passed(window):
            if text:
                self._write(index, {name: text})

    async def _passed(self, window: GuardWindow) -> AsyncIterator[str]:
        while (due := window.due()) is not None:
            await self._examine(due)
            yield window.passed()

    async def _examine(self, text: str) -> None:
        await self._examiner.examine_released(text, self._scope, tolerant=self._tolerant)

    async def _end(self, index: int, guarded: _GuardedChoice) -> None:
        """Examine and write the rest of a choice."""
        if guarded.ended:
            return
        guarded.ended = True
        for name, window in guarded.windows():
            window.end()
            await self._release(index, name, window)
            if rest := window.rest():
                self._write(index, {name: rest})
        for call in guarded.calls.complete():
            await self._examine(call.text)
        deltas, guarded.call_deltas = guarded.call_deltas, []
        for delta in deltas:
            self._write(index, delta)

    async def _end_all(self) -> None:
        for index, guarded in self._choices.items():
            await self._end(index, guarded)

    def _write(self, index: int, delta: Object, finish: str | None = None) -> None:
        """Write an event of one choice. The first one has the role."""
        guarded = self._choices[index]
        choice: Object = {"index": index}
        if self._is_chat:
            role = {} if guarded.has_role else {"role": "assistant"}
            choice["delta"] = {**role, **delta}
        else:
            choice["text"] = delta.get("content", "")
        guarded.has_role = True
        body = {**self._head, "choices": [{**choice, "logprobs": None, "finish_reason": finish}]}
        self._out.append(sse.encode(_encode(body)))


def _index(value: Object, default: int) -> int:
    index = value.get("index")
    return index if isinstance(index, int) else default


def _only(value: Object, *names: str) -> Object:
    return {name: value[name] for name in names if isinstance(value.get(name), str)}


def _text(value: Any) -> str:
    """A text, unchanged, or any other value as JSON."""
    return value if isinstance(value, str) else _encode(value).decode()
