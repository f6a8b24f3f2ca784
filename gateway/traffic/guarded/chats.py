"""Streams of generated texts behind a guard: text leaves when the guard lets it pass."""

from typing import Any

import msgspec

from adapters.answer import Answer
from adapters.wire import sse
from adapters.wire.openai.chat_reader import answer_text
from adapters.wire.reported_usage import chat_fields
from gateway.traffic.generated_text import Object, events_of
from gateway.traffic.guarded.guard import ContentReplaced, GuardedReader, GuardedText, StreamGuard
from policies.pipelines.window import HeldToolCalls, ToolCallOverflowError

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

    def __init__(self, guard: StreamGuard) -> None:
        self.calls = HeldToolCalls()
        self.call_deltas: list[tuple[int, Object]] = []
        """Each with the index of its call."""
        self.has_role = False
        self.ended = False
        self.has_finish = False
        self.leaves_in_parts = guard.arguments() is not None
        """Whether the arguments of calls leave before the answer ends."""
        self._guard = guard
        self._texts: dict[str, GuardedText] = {}
        self.arguments: dict[tuple[int, str], GuardedText] = {}
        """The arguments that leave in parts, by the index of their call and the kind of it."""

    def text(self, name: str) -> GuardedText:
        """The text of one name."""
        if name not in self._texts:
            self._texts[name] = self._guard.text(name)
        return self._texts[name]

    def texts(self) -> list[tuple[str, GuardedText]]:
        """All texts, by their names."""
        return list(self._texts.items())


class GuardedStream(GuardedReader):
    """Reads the events of a chat or a completion, and writes new events with the released texts.

    Only known fields are written, without log-probabilities, so that no field can carry text past the guard. Tool calls
    are held until the choice ends. A block ends the stream with an error and cancels the upstream.
    """

    __slots__ = ("_choices", "_guard", "_head", "_include_usage", "_is_chat", "_out")

    def __init__(self, inner: Answer, guard: StreamGuard, *, include_usage: bool = False) -> None:
        """`include_usage`: whether the client waits for the usage, which a stream that is replaced has too."""
        super().__init__(inner)
        self._include_usage = include_usage
        self._guard = guard
        self._choices: dict[int, _GuardedChoice] = {}
        self._head: Object = {}
        self._is_chat = True
        self._out: list[bytes] = []

    async def take(self, piece: bytes | None) -> bytes:
        if piece is None:
            await self._end_all()
        else:
            await self._take_piece(piece)
        out, self._out = b"".join(self._out), []
        return out

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
            self._write_usage(body["usage"])
            self._include_usage = self._include_usage and bool(choices)  # some servers report it with every event

    async def _take_choice(self, choice: Object) -> None:
        index = _index(choice, 0)
        if index not in self._choices and len(self._choices) >= MAX_CHOICES:
            raise self._guard.unreadable("The answer has more choices than a guard examines.")
        guarded = self._choices.setdefault(index, _GuardedChoice(self._guard))
        self._is_chat = "text" not in choice
        delta = choice.get("delta")
        texts = delta if isinstance(delta, dict) else {"content": choice.get("text")}
        if guarded.ended and any(texts.get(name) for name in (*_TEXTS, "tool_calls", "function_call")):
            raise self._guard.unreadable("The answer goes on after its end.")  # what has left is not known any more
        for name in _TEXTS:
            given = texts.get(name)
            if text := given if isinstance(given, str) else answer_text(given):
                self._write_text(index, name, await guarded.text(name).feed(text))
        self._hold_calls(guarded, texts)
        await self._write_calls(index, guarded)
        if choice.get("finish_reason") is not None:
            await self._end(index, guarded)
            self._write(index, {}, str(choice["finish_reason"]))
            guarded.has_finish = True

    def _hold_calls(self, guarded: _GuardedChoice, delta: Object) -> None:
        calls = delta.get("tool_calls")
        for place, call in enumerate(calls if isinstance(calls, list) else ()):
            if isinstance(call, dict):
                index = _index(call, place)
                held: Object = {"index": index, **_only(call, "id", "type")}
                for kind, argument in _CALLS.items():
                    if isinstance(part := call.get(kind), dict):
                        held[kind] = self._held(guarded, index, part, argument)
                guarded.call_deltas.append((index, {"tool_calls": [held]}))
        if isinstance(part := delta.get("function_call"), dict):  # OpenAI's older form of the only call
            held = {"function_call": self._held(guarded, _OLDER, part, "arguments")}
            guarded.call_deltas.append((_OLDER, held))

    def _held(self, guarded: _GuardedChoice, index: int, part: Object, argument: str) -> Object:
        """A part of a call that is held, with its known fields only."""
        fields = {name: _text(part[name]) for name in ("name", argument) if part.get(name) is not None}
        try:
            guarded.calls.feed(index, fields.get("name", ""), fields.get(argument, ""))
        except ToolCallOverflowError as error:
            raise self._guard.unreadable(f"A guard cannot hold the answer: {error}.") from None
        return fields

    async def _write_calls(self, index: int, guarded: _GuardedChoice) -> None:
        """Write the held parts of calls whose arguments leave in parts."""
        if not guarded.call_deltas or not guarded.leaves_in_parts:
            return
        deltas, guarded.call_deltas = guarded.call_deltas, []
        for at, delta in deltas:
            for kind, argument, part in _parts(delta):
                if argument in part:
                    if (text := guarded.arguments.get((at, kind))) is None:
                        text = guarded.arguments[at, kind] = _started(self._guard)
                    part[argument] = await text.feed(part[argument])
            self._write(index, delta)

    # ── releases ──────────────────────────────────────────────────────────────────────────────────────

    def replaced(self, error: ContentReplaced) -> bytes:
        for index, guarded in self._choices.items():
            if not guarded.has_finish:
                self._write(index, {"content": error.text})
                self._write(index, {}, "content_filter")
        if self._include_usage:
            self._write_usage(chat_fields(self._inner.usage))
        out, self._out = b"".join([*self._out, _DONE]), []
        return out

    def _write_usage(self, usage: Object) -> None:
        self._out.append(sse.encode(_encode({**self._head, "choices": [], "usage": usage})))

    def _write_text(self, index: int, name: str, text: str) -> None:
        if text:
            self._write(index, {name: text})

    async def _end(self, index: int, guarded: _GuardedChoice) -> None:
        """Examine and write the rest of a choice."""
        if guarded.ended:
            return
        guarded.ended = True
        for name, text in guarded.texts():
            self._write_text(index, name, await text.end())
        for (at, kind), text in guarded.arguments.items():
            if rest := await text.end():
                self._write(index, _continued(at, kind, rest))
        changed: dict[int, tuple[str, str] | None] = {}
        for at, call in guarded.calls.complete().items() if guarded.call_deltas else ():
            changed[at] = await self._guard.call(call)
        deltas, guarded.call_deltas = guarded.call_deltas, []
        for at, delta in deltas:
            if (other := changed.get(at)) is not None:
                _replace(delta, other)
                changed[at] = "", ""  # the whole is in the first delta
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


def _started(guard: StreamGuard) -> GuardedText:
    text = guard.arguments()
    assert text is not None  # this guard has begun others
    return text


def _parts(delta: Object) -> list[tuple[str, str, Object]]:
    """The parts of the only call of a delta: the kind, the field of the arguments, and the part."""
    call = delta["tool_calls"][0] if "tool_calls" in delta else {"function": delta["function_call"]}
    return [(kind, argument, call[kind]) for kind, argument in _CALLS.items() if kind in call]


def _continued(at: int, kind: str, arguments: str) -> Object:
    """A delta with more arguments of a call."""
    if at == _OLDER:
        return {"function_call": {"arguments": arguments}}
    return {"tool_calls": [{"index": at, kind: {_CALLS[kind]: arguments}}]}


def _index(value: Object, default: int) -> int:
    index = value.get("index")
    return index if isinstance(index, int) else default


def _only(value: Object, *names: str) -> Object:
    return {name: value[name] for name in names if isinstance(value.get(name), str)}


def _text(value: Any) -> str:
    """A text, unchanged, or any other value as JSON."""
    return value if isinstance(value, str) else _encode(value).decode()


def _replace(delta: Object, call: tuple[str, str]) -> None:
    """Write another name and other arguments into a delta of a call."""
    parts = delta["tool_calls"] if "tool_calls" in delta else [{"function": delta["function_call"]}]
    for part in parts:
        for kind, argument in _CALLS.items():
            if kind in part:
                part[kind].pop("name", None)
                part[kind] |= {**({"name": call[0]} if call[0] else {}), argument: call[1]}
