"""Streams behind a guard, of generated texts and of tensors: text leaves when the windows that hold it have passed."""

from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from adapters.answer import Answer
from adapters.errors import BackendError, CallerError, StepFailed
from adapters.stream import DerivedStream
from adapters.tensors import FINAL, Inferred, Tensor, element_count, join_bytes, split_bytes
from adapters.types import OIP_GENERATE, OIP_JSON, Form
from adapters.wire import sse
from adapters.wire.oip import generate as oip_generate
from adapters.wire.oip import responses as oip_responses
from adapters.wire.openai.chat_reader import answer_text
from gateway.features.pipelines.examiner import Examiner
from gateway.features.pipelines.scope import StepScope
from gateway.traffic.generated_text import Object, events_of
from policies.pipelines.window import CharacterDecoder, GuardWindow, HeldToolCalls, ToolCallOverflowError

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
MAX_TEXTS = 1024
"""Elements of all outputs of one response that are guarded."""


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


class GuardedStream(DerivedStream):
    """Reads the events of a chat or a completion, and writes new events with the released texts.

    Only known fields are written, without log-probabilities, so that no field can carry text past the guard. Tool calls
    are held until the choice ends. A block ends the stream with an error and cancels the upstream.
    """

    __slots__ = ("_choices", "_examiner", "_head", "_is_chat", "_out", "_scope", "_tolerant")

    def __init__(self, inner: Answer, examiner: Examiner, scope: StepScope, *, tolerant: bool) -> None:
        super().__init__(inner)
        self._examiner = examiner
        self._scope = scope
        self._tolerant = tolerant
        self._choices: dict[int, _GuardedChoice] = {}
        self._head: Object = {}
        self._is_chat = True
        self._out: list[bytes] = []

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


class _GuardedText:
    """One element of one output, over all responses of the stream."""

    def __init__(self, window: int, overlap: int) -> None:
        self.window = GuardWindow(window, overlap)
        self.characters = CharacterDecoder()


class GuardedTensorStream(DerivedStream):
    """Reads the responses of a stream over HTTP or gRPC, and writes them as events with the released texts.

    Each element of an output of BYTES is one text, which the next responses continue. Other outputs pass unchanged;
    texts in parameters are removed. A block ends the stream with an error and cancels the upstream.
    """

    __slots__ = ("_examiner", "_last", "_scope", "_shapes", "_texts", "_tolerant")

    def __init__(self, inner: Answer, examiner: Examiner, scope: StepScope, *, tolerant: bool) -> None:
        form = OIP_GENERATE if inner.form.generates else OIP_JSON
        super().__init__(inner, content_type="text/event-stream", form=form)
        self._examiner = examiner
        self._scope = scope
        self._tolerant = tolerant
        self._texts: dict[tuple[str, int], _GuardedText] = {}
        self._shapes: dict[str, tuple[int, ...]] = {}
        """The latest shape of each output with texts."""
        self._last: Inferred | None = None
        """The last response, after which texts may still be held; None after they have been released."""

    async def _next(self, patience: float | None = None) -> bytes:
        while True:
            try:
                piece = await self._inner.__anext__()
            except StopAsyncIteration:
                last, self._last = self._last, None
                if last is None or not (rest := await self._rest(last, ())):
                    raise
                return rest
            events = [await self._taken(response) for response in _responses(piece, self._inner.form)]
            if events:
                return b"".join(events)

    async def _taken(self, response: Inferred) -> bytes:
        """The event of a response. At the last response, texts that it does not continue leave before it."""
        ends = response.parameters.get(FINAL) is True
        rest = await self._rest(response, response.outputs) if ends else b""
        outputs = [await self._guarded(tensor, ends=ends) for tensor in response.outputs]
        self._last = None if ends else response
        return rest + self._written(response, outputs)

    async def _rest(self, response: Inferred, continued: Sequence[Tensor]) -> bytes:
        """An event with the held texts that no tensor of `continued` continues; empty if nothing is held."""
        counts = {tensor.name: element_count(tensor.shape) for tensor in continued}
        outputs = []
        for name, shape in self._shapes.items():
            keys = [key for key in self._texts if key[0] == name and key[1] >= counts.get(name, 0)]
            texts = {key[1]: await self._released(self._texts[key], b"", ends=True) for key in keys}
            if any(texts.values()):
                count = max(max(texts) + 1, element_count(shape))
                data = join_bytes([texts.get(index, "").encode() for index in range(count)])
                outputs.append(Tensor(name, "BYTES", shape if count == element_count(shape) else (count,), data))
        if not outputs:
            return b""
        return self._written(replace(response, parameters={**response.parameters, FINAL: False}), outputs)

    def _written(self, response: Inferred, outputs: list[Tensor]) -> bytes:
        parameters = {name: value for name, value in response.parameters.items() if not isinstance(value, str)}
        made = Inferred(response.model_name, response.model_version, response.id, parameters, outputs)
        if self.form.generates:
            return sse.encode(oip_generate.encode_generate(made))
        return sse.encode(oip_responses.encode_response(made)[0])

    async def _guarded(self, tensor: Tensor, *, ends: bool) -> Tensor:
        if tensor.datatype != "BYTES":
            return tensor
        count = element_count(tensor.shape)
        try:
            elements = split_bytes(tensor.data, count, tensor.name)
        except CallerError as error:
            raise StepFailed(f"A guard cannot read the answer: {error.message}", step=self._scope.path) from None
        self._shapes[tensor.name] = tensor.shape
        released = [
            await self._released(self._text(tensor.name, index), element, ends=ends)
            for index, element in enumerate(elements)
        ]
        return Tensor(tensor.name, tensor.datatype, tensor.shape, join_bytes([text.encode() for text in released]))

    def _text(self, name: str, index: int) -> _GuardedText:
        key = (name, index)
        if key not in self._texts:
            if len(self._texts) >= MAX_TEXTS:
                raise StepFailed("The answer has more texts than a guard examines.", step=self._scope.path)
            self._texts[key] = _GuardedText(self._examiner.window, self._examiner.overlap)
        return self._texts[key]

    async def _released(self, text: _GuardedText, element: bytes, *, ends: bool) -> str:
        text.window.feed(text.characters.feed(element))
        if ends:
            text.window.feed(text.characters.end())
            text.window.end()
        released = ""
        while (due := text.window.due()) is not None:
            await self._examiner.examine_released(due, self._scope, tolerant=self._tolerant)
            released += text.window.passed()
        return released + text.window.rest()


def _responses(piece: bytes, form: Form) -> Iterator[Inferred]:
    """The responses in a piece of a stream. Raises `BackendError` for an error of the upstream."""
    if form.wire == "oip-grpc":
        from adapters.wire.oip import proto_responses  # needs the gRPC extra, as does an upstream of this wire

        error, message = proto_responses.split_stream_response(piece)
        if error:
            raise BackendError(error)
        yield proto_responses.decode_infer_response(message)
        return
    for event in piece.split(b"\n\n"):
        if event and (data := sse.data_of(event)):
            yield oip_generate.decode_texts(data) if form.generates else oip_responses.decode_response(data, None)
