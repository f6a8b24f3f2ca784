"""Answers of OpenAI's completion and chat APIs, whole and as chunks: values in, JSON out."""

import secrets
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import msgspec
from msgspec import UNSET, UnsetType

from runtimes.llm.api.token_logprobs import ScoredPrompt, ScoredToken, TokenNames, chat_logprobs, completion_logprobs
from runtimes.llm.sequence import FinishReason
from runtimes.llm.text.answer_parser import AnswerParser, Part, Thought
from runtimes.llm.text.tool_parser import AnswerText, CallBegun

Ending = FinishReason | Literal["tool_calls"]


class Finished(NamedTuple):
    """One whole choice."""

    text: str
    finish_reason: FinishReason
    tokens: Sequence[ScoredToken] = ()
    token_ids: Sequence[int] = ()
    scored_prompt: ScoredPrompt | None = None


class TokenReport(NamedTuple):
    """The tokens of a piece of text: `ids` of those generated since the piece before, and `scored` those that begin in
    it, if log-probabilities were requested."""

    ids: Sequence[int] = ()
    scored: Sequence[ScoredToken] = ()


class PromptDetails(msgspec.Struct):
    """The number of the prompt's tokens that were read from the cache."""

    cached_tokens: int = 0


class CompletionDetails(msgspec.Struct):
    """The number of the answer's tokens that are thoughts; and the numbers of the prediction's tokens that a step has
    computed ahead, those that are in the answer and those that are not."""

    reasoning_tokens: int | UnsetType = UNSET
    accepted_prediction_tokens: int | UnsetType = UNSET
    rejected_prediction_tokens: int | UnsetType = UNSET


class UsageBody(msgspec.Struct):
    """The cost in tokens. The prompt counts once, for any number of choices."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails
    completion_tokens_details: CompletionDetails | UnsetType = UNSET


class FunctionPart(msgspec.Struct, omit_defaults=True):
    name: str | UnsetType = UNSET
    arguments: str | UnsetType = UNSET


class ToolCallPart(msgspec.Struct, omit_defaults=True):
    """A whole call, or a piece of the call at `index`."""

    index: int | UnsetType = UNSET
    id: str | UnsetType = UNSET
    type: str | UnsetType = UNSET
    function: FunctionPart | UnsetType = UNSET


class AnswerMessage(msgspec.Struct):
    content: str | None
    role: str = "assistant"
    refusal: None = None
    tool_calls: Sequence[ToolCallPart] | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET


class Delta(msgspec.Struct, omit_defaults=True):
    role: str | UnsetType = UNSET
    content: str | UnsetType = UNSET
    tool_calls: Sequence[ToolCallPart] | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET


class ChatChoice(msgspec.Struct):
    index: int
    message: AnswerMessage
    finish_reason: Ending
    logprobs: dict[str, Any] | None = None
    token_ids: Sequence[int] | UnsetType = UNSET


class ChatChunkChoice(msgspec.Struct):
    index: int
    delta: Delta
    finish_reason: Ending | None = None
    logprobs: dict[str, Any] | None = None
    token_ids: Sequence[int] | UnsetType = UNSET


class TextChoice(msgspec.Struct):
    """A choice of a text completion, in an answer and in a chunk."""

    index: int
    text: str
    finish_reason: FinishReason | None = None
    logprobs: dict[str, Any] | None = None
    token_ids: Sequence[int] | UnsetType = UNSET
    prompt_logprobs: ScoredPrompt | UnsetType = UNSET


AnyChoice = ChatChoice | ChatChunkChoice | TextChoice


class Body(msgspec.Struct):
    id: str
    object: str
    created: int
    model: str
    system_fingerprint: str
    choices: Sequence[AnyChoice]
    usage: UsageBody | UnsetType | None = UNSET
    prompt_logprobs: ScoredPrompt | UnsetType = UNSET


_encode = msgspec.json.Encoder().encode


class AnswerWriter(Protocol):
    """Writes one answer, whole or chunk by chunk, in one API's format."""

    fingerprint: str
    """As its bodies report it."""

    def whole(self, choices: Sequence[Finished], usage: UsageBody) -> bytes: ...

    def resume(self, index: int, text: str) -> None:
        """Continue the choice after a `text` that the client has received."""

    def opening(self, index: int) -> bytes | None:
        """The chunk before a choice's first text, if the API has one."""

    def text(self, index: int, text: str, tokens: TokenReport) -> list[bytes]:
        """The chunks of a piece of text; none while no part of it is final."""

    def finish(self, index: int, rest: str, reason: FinishReason, tokens: TokenReport) -> list[bytes]:
        """The last chunks. `rest` is the last of the text, and nearly always empty."""

    def usage(self, usage: UsageBody) -> bytes:
        """The chunk after all choices, with the usage."""


class _Writer:
    id_prefix: ClassVar[str]
    whole_object: ClassVar[str]
    chunk_object: ClassVar[str]

    def __init__(
        self,
        model: str,
        fingerprint: str,
        *,
        with_usage: bool,
        with_token_ids: bool = False,
        names: TokenNames | None = None,
    ) -> None:
        """With `names`, log-probabilities are reported."""
        self._names = names
        self._with_token_ids = with_token_ids
        self._id = f"{self.id_prefix}-{secrets.token_hex(16)}"
        self._created = int(time.time())
        self._model = model
        self.fingerprint = fingerprint
        # Chunks of a stream with usage have null until the last one.
        self._no_usage_yet = None if with_usage else UNSET

    def usage(self, usage: UsageBody) -> bytes:
        return self._body(self.chunk_object, [], usage)

    def _logprobs(self, tokens: Sequence[ScoredToken]) -> dict[str, Any] | None:
        return None if self._names is None else self._shaped(tokens, self._names)

    def _shaped(self, tokens: Sequence[ScoredToken], names: TokenNames) -> dict[str, Any]:
        raise NotImplementedError

    def _chunk_logprobs(self, tokens: Sequence[ScoredToken]) -> dict[str, Any] | None:
        return self._logprobs(tokens) if tokens else None

    def _ids(self, token_ids: Sequence[int]) -> Sequence[int] | UnsetType:
        return token_ids if self._with_token_ids else UNSET

    def _chunk(self, choice: AnyChoice) -> bytes:
        return self._body(self.chunk_object, [choice], self._no_usage_yet)

    def _body(
        self,
        object: str,
        choices: Sequence[AnyChoice],
        usage: UsageBody | UnsetType | None,
        scored_prompt: ScoredPrompt | None = None,
    ) -> bytes:
        scored = UNSET if scored_prompt is None else scored_prompt
        return _encode(Body(self._id, object, self._created, self._model, self.fingerprint, choices, usage, scored))


class ChatWriter(_Writer):
    """`chat.completion` and `chat.completion.chunk`."""

    id_prefix = "chatcmpl"
    whole_object = "chat.completion"
    chunk_object = "chat.completion.chunk"

    def _shaped(self, tokens: Sequence[ScoredToken], names: TokenNames) -> dict[str, Any]:
        return chat_logprobs(tokens, names)

    def __init__(
        self,
        model: str,
        fingerprint: str,
        *,
        with_usage: bool,
        with_token_ids: bool = False,
        names: TokenNames | None = None,
        parser: Callable[[], AnswerParser] | None = None,
    ) -> None:
        """A `parser` separates the thoughts and tool calls of a choice."""
        super().__init__(model, fingerprint, with_usage=with_usage, with_token_ids=with_token_ids, names=names)
        self._parsers = None if parser is None else defaultdict[int, AnswerParser](parser)

    def whole(self, choices: Sequence[Finished], usage: UsageBody) -> bytes:
        written = []
        for i, choice in enumerate(choices):
            message, reason = self._message(i, choice)
            written.append(ChatChoice(i, message, reason, self._logprobs(choice.tokens), self._ids(choice.token_ids)))
        return self._body(self.whole_object, written, usage, choices[0].scored_prompt)

    def resume(self, index: int, text: str) -> None:
        if self._parsers is not None:
            self._parsers[index].push(text)

    def opening(self, index: int) -> bytes | None:
        return self._chunk(ChatChunkChoice(index, Delta(role="assistant", content="")))

    def text(self, index: int, text: str, tokens: TokenReport) -> list[bytes]:
        logprobs, ids = self._chunk_logprobs(tokens.scored), self._ids(tokens.ids)
        if self._parsers is None:
            return [self._chunk(ChatChunkChoice(index, Delta(content=text), None, logprobs, ids))]
        deltas = [_delta(part) for part in self._parsers[index].push(text)]
        if not deltas and (tokens.scored or ids):
            deltas = [Delta()]
        chunks = []
        for delta in deltas:
            chunks.append(self._chunk(ChatChunkChoice(index, delta, None, logprobs, ids)))
            logprobs, ids = None, UNSET
        return chunks

    def finish(self, index: int, rest: str, reason: FinishReason, tokens: TokenReport) -> list[bytes]:
        logprobs, ids = self._chunk_logprobs(tokens.scored), self._ids(tokens.ids)
        if self._parsers is None:
            return [self._chunk(ChatChunkChoice(index, Delta(content=rest or UNSET), reason, logprobs, ids))]
        parser = self._parsers[index]
        deltas = [_delta(part) for part in (*parser.push(rest), *parser.finish())]
        chunks = [self._chunk(ChatChunkChoice(index, delta)) for delta in deltas]
        return [*chunks, self._chunk(ChatChunkChoice(index, Delta(), _ending(parser, reason), logprobs, ids))]

    def _message(self, index: int, choice: Finished) -> tuple[AnswerMessage, Ending]:
        if self._parsers is None:
            return AnswerMessage(choice.text), choice.finish_reason
        parser = self._parsers[index]
        texts: list[str] = []
        thoughts: list[str] = []
        calls: list[ToolCallPart] = []
        arguments: list[list[str]] = []
        for part in (*parser.push(choice.text), *parser.finish()):
            if isinstance(part, AnswerText):
                texts.append(part.text)
            elif isinstance(part, Thought):
                thoughts.append(part.text)
            elif isinstance(part, CallBegun):
                calls.append(ToolCallPart(id=part.id, type="function", function=FunctionPart(part.name)))
                arguments.append([])
            else:
                arguments[part.at].append(part.text)
        thought = "".join(thoughts) or UNSET
        if not calls:
            content = "".join(texts) or (None if thoughts else "")
            return AnswerMessage(content, reasoning_content=thought), choice.finish_reason
        for call, pieces in zip(calls, arguments, strict=True):
            assert isinstance(call.function, FunctionPart)
            call.function.arguments = "".join(pieces)
        message = AnswerMessage("".join(texts) or None, tool_calls=calls, reasoning_content=thought)
        return message, _ending(parser, choice.finish_reason)


def _delta(part: Part) -> Delta:
    if isinstance(part, Thought):
        return Delta(reasoning_content=part.text)
    if isinstance(part, AnswerText):
        return Delta(content=part.text)
    if isinstance(part, CallBegun):
        return Delta(tool_calls=[ToolCallPart(part.at, part.id, "function", FunctionPart(part.name, ""))])
    return Delta(tool_calls=[ToolCallPart(part.at, function=FunctionPart(arguments=part.text))])


def _ending(parser: AnswerParser, reason: FinishReason) -> Ending:
    """An answer with tool calls ends with `tool_calls`, unless it was cut."""
    return "tool_calls" if reason == "stop" and parser.num_calls else reason


class CompletionWriter(_Writer):
    """`text_completion`, which is the object name of its chunks too."""

    id_prefix = "cmpl"
    whole_object = chunk_object = "text_completion"

    def _shaped(self, tokens: Sequence[ScoredToken], names: TokenNames) -> dict[str, Any]:
        return completion_logprobs(tokens, names)

    def whole(self, choices: Sequence[Finished], usage: UsageBody) -> bytes:
        return self._body(self.whole_object, [self._choice(i, choice) for i, choice in enumerate(choices)], usage)

    def _choice(self, index: int, choice: Finished) -> TextChoice:
        ids, scored = self._ids(choice.token_ids), UNSET if choice.scored_prompt is None else choice.scored_prompt
        return TextChoice(index, choice.text, choice.finish_reason, self._logprobs(choice.tokens), ids, scored)

    def resume(self, index: int, text: str) -> None:
        pass  # a completion's text is not parsed

    def opening(self, index: int) -> bytes | None:
        return None

    def text(self, index: int, text: str, tokens: TokenReport) -> list[bytes]:
        return [self._chunk(TextChoice(index, text, None, self._chunk_logprobs(tokens.scored), self._ids(tokens.ids)))]

    def finish(self, index: int, rest: str, reason: FinishReason, tokens: TokenReport) -> list[bytes]:
        logprobs, ids = self._chunk_logprobs(tokens.scored), self._ids(tokens.ids)
        return [self._chunk(TextChoice(index, rest, reason, logprobs, ids))]
