"""Reads a chat's answer, whole or streamed, for doors with another protocol.

Servers differ in what they write. What cannot be read is left out: it must not cost the client a complete text.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from adapters.wire import decoding, reported_usage
from adapters.wire.openai.chat_calls import AnsweredCall, CallAssembly
from adapters.wire.reported_usage import UsageReport

Kind = Literal["thought", "text", "refusal"]
Object = dict[str, Any]


class Text(NamedTuple):
    """A piece of a text. `logprobs` are those of its tokens."""

    kind: Kind
    text: str
    logprobs: Sequence[Object] = ()


class Signed(NamedTuple):
    """A thought's signature, or a thought that cannot be read: a block of Anthropic's messages."""

    block: Object


class CallPiece(NamedTuple):
    """A piece of a tool call, which has a name."""

    call: AnsweredCall
    arguments: str


Part = Text | Signed | CallPiece
_any = msgspec.json.Decoder().decode


class ChatReader:
    """Reads one answer. Its attributes are what the answer has reported so far."""

    __slots__ = (
        "_calls", "_halves", "_is_odd", "_thinks", "finish", "has_calls", "has_choice", "matched", "model", "reported",
    )  # fmt: skip

    def __init__(self) -> None:
        self._calls = CallAssembly()
        self._halves: dict[Any, str] = {}
        self._is_odd = False
        self._thinks = False
        self.model = ""
        self.finish: str | None = None
        self.matched: tuple[Any, ...] = ()
        """The stop text that ended the answer, in vLLM's field and in SGLang's."""
        self.reported: UsageReport | None = None
        self.has_calls = self.has_choice = False

    def read_chunk(self, data: bytes) -> list[Part]:
        """Read a chunk of a stream. Raises `BackendError`."""
        choice = self._choice(self._decoded(data, "stream"), data)
        delta = choice.get("delta", choice.get("message"))
        return self._parts(delta, choice, is_whole=False) if isinstance(delta, dict) else []

    def read_whole(self, body: bytes) -> list[Part]:
        """Read a whole answer. Raises `BackendError` if it has no message."""
        choice = self._choice(self._decoded(body, "response"), body)
        message = choice.get("message")
        if not isinstance(message, dict):
            raise decoding.bad_response("The upstream's response has no message.")
        return [*self._parts(message, choice, is_whole=True), *self.end()]

    def end(self) -> list[Part]:
        """What is left. Raises `BackendError` if a call has no name."""
        calls = list[Part](map(self._piece, self._calls.end()))
        left, self._halves = self._halves, {}
        return calls + [Text(place, "\ufffd") for place in left if isinstance(place, str)]  # type: ignore[arg-type]

    # ── one object ────────────────────────────────────────────────────────────────────────────────────

    def _decoded(self, body: bytes, subject: str) -> Object:
        try:
            decoded = _any(body)
        except decoding.MALFORMED_JSON:
            decoded, self._is_odd = decoding.decode(decoding.loose, body, subject), True
        if not isinstance(decoded, dict):
            raise decoding.malformed(subject)
        return decoded

    def _choice(self, body: Object, data: bytes) -> Object:
        """The first choice; empty if there is none."""
        self.model = self.model or _text(body.get("model"))
        has_usage = b'"usage"' in data and not data.endswith(b'"usage":null}')
        if has_usage and (reported := reported_usage.of_chat(body)) is not None:
            self.reported = reported.over(self.reported)
        choices = body.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict) and not choice.get("index"):
                self.has_choice = True
                if finish := _text(choice.get("finish_reason")):
                    self.finish = finish
                    self.matched = (choice.get("stop_reason"), choice.get("matched_stop"))
                return choice
        return {}

    def _parts(self, message: Object, choice: Object, *, is_whole: bool) -> list[Part]:
        content, likely = message.get("content"), choice.get("logprobs")
        if content and len(message) == 1 and likely is None and isinstance(content, str) and not self._is_odd:
            return [Text("text", content)]  # most chunks
        parts = list[Part](self._thoughts(message, is_whole=is_whole))
        logprobs = _objects(likely.get("content")) if isinstance(likely, dict) else ()
        if isinstance(content, str) and not self._is_odd:
            if content:
                parts.append(Text("text", content, logprobs))
        elif content:
            for part in _content(content):
                parts += self._joined(part._replace(logprobs=logprobs) if part.kind == "text" else part)
                logprobs = ()
        if refusal := message.get("refusal"):
            parts += self._joined(Text("refusal", _text(refusal)))
        pieces = _objects(message.get("tool_calls"))
        if isinstance(legacy := message.get("function_call"), dict):
            pieces.append({"index": "function_call", "function": legacy})
        for piece in pieces:
            parts += map(self._piece, self._calls.take(piece, is_whole=is_whole))
        return parts

    def _piece(self, call: AnsweredCall) -> CallPiece:
        self.has_calls = True
        text = call.take()
        return CallPiece(call, self._whole_characters(call, text) if self._is_odd else text)

    def _thoughts(self, message: Object, *, is_whole: bool) -> Iterator[Part]:
        """A stream's blocks of thoughts sign texts that came before; a whole answer's blocks have the texts too."""
        blocks = _objects(message.get("thinking_blocks"))
        text = _text(message.get("reasoning_content")) or _text(message.get("reasoning"))
        if not (text or blocks):
            return
        if is_whole and any(block.get("thinking") for block in blocks):
            text = ""
        has_text = bool(text) or self._thinks
        yield from self._joined(Text("thought", text))
        for block in blocks:
            if not has_text or (is_whole and not text):
                yield from self._joined(Text("thought", _text(block.get("thinking"))))
            if block.get("type") == "redacted_thinking" or _text(block.get("signature")):
                yield Signed(block)
        self._thinks = has_text

    # ── texts in UTF-16 ───────────────────────────────────────────────────────────────────────────────

    def _joined(self, part: Text) -> Iterator[Text]:
        text = self._whole_characters(part.kind, part.text) if self._is_odd else part.text
        if text:
            yield part._replace(text=text)

    def _whole_characters(self, place: Any, text: str) -> str:
        """Join the halves of surrogate pairs. A half at the end waits for the next piece of the same place."""
        text = self._halves.pop(place, "") + text
        if "\ud800" <= text[-1:] <= "\udbff":
            text, self._halves[place] = text[:-1], text[-1]
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def answer_text(content: Any) -> str:
    """The text of a message's content, whatever its form."""
    return "".join(part.text for part in _content(content) if part.kind == "text")


def _content(content: Any) -> Iterator[Text]:
    """A text, or parts of several types."""
    if isinstance(content, str):
        yield Text("text", content)
    for part in content if isinstance(content, list) else ():
        if isinstance(part, str):
            yield Text("text", part)
        elif isinstance(part, dict):
            match part.get("type"):
                case "text" | "output_text":
                    yield Text("text", _text(part.get("text")))
                case "refusal":
                    yield Text("refusal", _text(part.get("refusal")))
                case "thinking" | "reasoning" as name:
                    thoughts = part.get(name) or part.get("text")  # a list is Mistral's
                    yield Text("thought", "".join(inner.text for inner in _content(thoughts)))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _objects(value: Any) -> list[Object]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
