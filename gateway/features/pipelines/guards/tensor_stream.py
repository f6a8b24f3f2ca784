"""A stream of tensors behind a guard: the texts of its responses leave when the windows that hold them have passed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from adapters.answer import Answer
from adapters.errors import BackendError, CallerError, StepFailed
from adapters.stream import Stream
from adapters.tensors import FINAL, Inferred, Tensor, element_count, join_bytes, split_bytes
from adapters.types import OIP_GENERATE, OIP_JSON, Form
from adapters.wire import sse
from adapters.wire.oip import generate as oip_generate
from adapters.wire.oip import responses as oip_responses
from gateway.features.pipelines.guards.examiner import Examiner
from gateway.features.pipelines.scope import StepScope
from policies.pipelines.window import CharacterDecoder, GuardWindow

MAX_TEXTS = 1024
"""Elements of all outputs of one response that are guarded."""


class _GuardedText:
    """One element of one output, over all responses of the stream."""

    def __init__(self, window: int, overlap: int) -> None:
        self.window = GuardWindow(window, overlap)
        self.characters = CharacterDecoder()


class GuardedTensorStream(Stream):
    """Reads the responses of a stream over HTTP or gRPC, and writes them as events with the released texts.

    Each element of an output of BYTES is one text, which the next responses continue. Other outputs pass unchanged;
    texts in parameters are removed. A block ends the stream with an error and cancels the upstream.
    """

    __slots__ = ("_examiner", "_inner", "_last", "_scope", "_shapes", "_texts", "_tolerant")

    def __init__(self, inner: Answer, examiner: Examiner, scope: StepScope, *, tolerant: bool) -> None:
        form = OIP_GENERATE if inner.form.generates else OIP_JSON
        super().__init__(content_type="text/event-stream", usage=inner.usage, status=inner.status, form=form)
        self.pool, self.endpoint, self.headers = inner.pool, inner.endpoint, inner.headers
        self._inner = inner
        self._examiner = examiner
        self._scope = scope
        self._tolerant = tolerant
        self._texts: dict[tuple[str, int], _GuardedText] = {}
        self._shapes: dict[str, tuple[int, ...]] = {}
        """The latest shape of each output with texts."""
        self._last: Inferred | None = None
        """The last response, after which texts may still be held; None after they have been released."""
        inner.when_ended(self._take_usage)

    def _take_usage(self, inner: Answer, _: BaseException | None) -> None:
        self.usage = inner.usage

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

    async def _drop(self) -> None:
        await self._inner.aclose()

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
