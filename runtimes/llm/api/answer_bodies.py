"""The JSON bodies of completions and chats, whole and as chunks."""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from runtimes.llm.api.token_logprobs import ScoredPrompt, ScoredToken
from runtimes.llm.engine.sequence import FinishReason

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
    """The number of the answer's tokens that are thoughts."""

    reasoning_tokens: int


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
