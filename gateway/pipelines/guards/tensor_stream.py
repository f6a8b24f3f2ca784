"""A stream of tensors behind a guard: the texts of its responses leave when the windows that hold them have passed."""

from __future__ import annotations

from collections.abc import Iterator

from adapters.answer import Answer
from adapters.errors import BackendError, CallerError, ContentFiltered, InferenceError, StepFailed
from adapters.stream import Stream
from adapters.tensors import FINAL, Inferred, Tensor, element_count, join_bytes, split_bytes
from adapters.types import OIP_JSON
from adapters.wire import sse
from adapters.wire.oip import responses as oip_responses
from gateway.pipelines.guards.examiner import Examiner
from gateway.pipelines.scope import StepScope
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

    Each element of an output of BYTES is one text, which the next responses continue. Other outputs pass unchanged. A
    block ends the stream with an error and cancels the upstream.
    """

    __slots__ = ("_examiner", "_inner", "_last", "_scope", "_texts", "_tolerant")

    def __init__(self, inner: Answer, examiner: Examiner, scope: StepScope, *, tolerant: bool) -> None:
        super().__init__(content_type="text/event-stream", usage=inner.usage, status=inner.status, form=OIP_JSON)
        self.pool, self.endpoint, self.headers = inner.pool, inner.endpoint, inner.headers
        self._inner = inner
        self._examiner = examiner
        self._scope = scope
        self._tolerant = tolerant
        self._texts: dict[tuple[str, int], _GuardedText] = {}
        self._last: Inferred | None = None
        """The last response, whose outputs may still have held texts; None after its texts have been released."""
        inner.when_ended(self._take_usage)

    def _take_usage(self, inner: Answer, _: BaseException | None) -> None:
        self.usage = inner.usage

    async def _next(self, patience: float | None = None) -> bytes:
        while True:
            try:
                piece = await self._inner.__anext__()
            except StopAsyncIteration:
                if self._last is None:
                    raise
                rest, self._last = self._last, None
                return await self._written(rest, new=False, ends=True)
            events = [await self._taken(response) for response in _responses(piece, self._inner.form.wire)]
            if events:
                return b"".join(events)

    async def _drop(self) -> None:
        await self._inner.aclose()

    async def _taken(self, response: Inferred) -> bytes:
        ends = response.parameters.get(FINAL) is True
        written = await self._written(response, new=True, ends=ends)
        self._last = None if ends or not self._texts else response
        return written

    async def _written(self, response: Inferred, *, new: bool, ends: bool) -> bytes:
        """An event with the texts that may leave. `new`: the response has text to examine."""
        outputs = [await self._guarded(tensor, new=new, ends=ends) for tensor in response.outputs]
        if not new:
            outputs = [tensor for tensor in outputs if tensor.datatype == "BYTES"]
        made = Inferred(response.model_name, response.model_version, response.id, response.parameters, outputs)
        return sse.encode(oip_responses.encode_response(made)[0])

    async def _guarded(self, tensor: Tensor, *, new: bool, ends: bool) -> Tensor:
        if tensor.datatype != "BYTES":
            return tensor
        count = element_count(tensor.shape)
        try:
            elements = split_bytes(tensor.data, count, tensor.name) if new else [b""] * count
        except CallerError as error:
            raise StepFailed(f"A guard cannot read the answer: {error.message}", step=self._scope.path) from None
        released = [
            await self._released(self._text(tensor.name, index), element, ends=ends)
            for index, element in enumerate(elements)
        ]
        data = join_bytes([text.encode() for text in released])
        return Tensor(tensor.name, tensor.datatype, tensor.shape, data, tensor.parameters)

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
            await self._examine(due)
            released += text.window.passed()
        return released + text.window.rest()

    async def _examine(self, text: str) -> None:
        try:
            await self._examiner.examine([text], self._scope)
        except ContentFiltered:
            if self._scope.call.step is not None:
                self._scope.call.step.blocked = True
            raise
        except InferenceError:
            if not self._tolerant:
                raise


def _responses(piece: bytes, wire: str) -> Iterator[Inferred]:
    """The responses in a piece of a stream. Raises `BackendError` for an error of the upstream."""
    if wire == "oip-grpc":
        from adapters.wire.oip import proto_responses  # needs the gRPC extra, as does an upstream of this wire

        error, message = proto_responses.split_stream_response(piece)
        if error:
            raise BackendError(error)
        yield proto_responses.decode_infer_response(message)
        return
    for event in piece.split(b"\n\n"):
        if event and (data := sse.data_of(event)):
            yield oip_responses.decode_response(data, None)
