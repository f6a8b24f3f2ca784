"""Streams of tensors behind a guard: text leaves when the guard lets it pass."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from adapters.answer import Answer
from adapters.errors import BackendError, CallerError
from adapters.tensors import FINAL, Inferred, Tensor, element_count, join_bytes, split_bytes
from adapters.types import OIP_GENERATE, OIP_JSON, Form
from adapters.wire import sse
from adapters.wire.oip import generate as oip_generate
from adapters.wire.oip import responses as oip_responses
from gateway.traffic.guarded.guard import GuardedReader, GuardedText, StreamGuard
from policies.pipelines.window import CharacterDecoder

MAX_TEXTS = 1024
"""Elements of all outputs of one response that are guarded."""


class _GuardedElement:
    """One element of one output, over all responses of the stream."""

    def __init__(self, text: GuardedText) -> None:
        self.text = text
        self.characters = CharacterDecoder()


class GuardedTensorStream(GuardedReader):
    """Reads the responses of a stream over HTTP or gRPC, and writes them as events with the released texts.

    Each element of an output of BYTES is one text, which the next responses continue. Other outputs pass unchanged;
    texts in parameters are removed. A block ends the stream with an error and cancels the upstream.
    """

    __slots__ = ("_guard", "_last", "_shapes", "_texts")

    def __init__(self, inner: Answer, guard: StreamGuard) -> None:
        form = OIP_GENERATE if inner.form.generates else OIP_JSON
        super().__init__(inner, content_type="text/event-stream", form=form)
        self._guard = guard
        self._texts: dict[tuple[str, int], _GuardedElement] = {}
        self._shapes: dict[str, tuple[int, ...]] = {}
        """The latest shape of each output with texts."""
        self._last: Inferred | None = None
        """The last response, after which texts may still be held; None after they have been released."""

    async def take(self, piece: bytes | None) -> bytes:
        if piece is None:
            last, self._last = self._last, None
            return b"" if last is None else await self._rest(last, ())
        return b"".join([await self._taken(response) for response in _responses(piece, self._inner.form)])

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
            raise self._guard.unreadable(f"A guard cannot read the answer: {error.message}") from None
        self._shapes[tensor.name] = tensor.shape
        released = [
            await self._released(self._text(tensor.name, index), element, ends=ends)
            for index, element in enumerate(elements)
        ]
        return Tensor(tensor.name, tensor.datatype, tensor.shape, join_bytes([text.encode() for text in released]))

    def _text(self, name: str, index: int) -> _GuardedElement:
        key = (name, index)
        if key not in self._texts:
            if len(self._texts) >= MAX_TEXTS:
                raise self._guard.unreadable("The answer has more texts than a guard examines.")
            self._texts[key] = _GuardedElement(self._guard.text())
        return self._texts[key]

    async def _released(self, element: _GuardedElement, chunk: bytes, *, ends: bool) -> str:
        released = await element.text.feed(element.characters.feed(chunk))
        if ends:
            released += await element.text.feed(element.characters.end()) + await element.text.end()
        return released


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
