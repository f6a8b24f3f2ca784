"""Translates the field names in errors to those of the client's API.

A request may be transcoded to another protocol. A refusal then names the fields of that protocol, which the client
does not use.
"""

import re
from collections.abc import Mapping
from typing import TypeVar

from adapters.errors import CallerError, InferenceError

_PATH = re.compile(r"([`'\"])([a-z][a-z0-9_]*(?:\.[a-z0-9_]+|\[(?:\d+|\.\.\.)\])*)\1")
_WORD = re.compile(r"\b[a-z]+(?:_[a-z]+)+\b")

E = TypeVar("E", bound=InferenceError)


class FieldNames:
    """The field names of one protocol in another.

    `fields` maps one protocol's top-level fields to their names in the other; `inner` maps words within them. A field
    with the same name but another structure is in `fields` too: the paths within it differ.
    """

    def __init__(self, fields: Mapping[str, str], inner: Mapping[str, str]) -> None:
        self._fields = fields
        self._inner = inner
        self._bare = {word: name for word, name in {**inner, **fields}.items() if "_" in word}

    def field(self, path: str) -> str:
        """Translate a field's path. A path within a field of another structure becomes the name of the field."""
        head, *rest = re.split(r"[.\[]", path)
        if head in self._fields:
            return self._fields[head]
        return head if any(part in self._inner for part in rest) else path

    def sentence(self, message: str) -> str:
        """Translate the field names in a message."""
        message = _PATH.sub(lambda match: f"{match[1]}{self.field(match[2])}{match[1]}", message)
        return _WORD.sub(lambda match: self._bare.get(match[0], match[0]), message)

    def of(self, error: E) -> E:
        """Translate an error in place, once."""
        if error.own_words or not isinstance(error, CallerError):
            return error
        error.own_words = True
        error.message = self.sentence(error.message)
        if error.param is not None:
            error.param = self.field(error.param)
        return error


MESSAGES = FieldNames(
    {
        "add_generation_prompt": "messages",
        "continue_final_message": "messages",
        "max_completion_tokens": "max_tokens",
        "messages": "messages",
        "n_predict": "max_tokens",
        "parallel_tool_calls": "tool_choice",
        "prompt": "messages",
        "reasoning_effort": "output_config.effort",
        "response_format": "output_config.format",
        "stop": "stop_sequences",
        "stream_options": "stream",
        "user": "metadata",
    },
    {
        "file_data": "document",
        "function": "tool",
        "image_url": "image",
        "parameters": "input_schema",
        "reasoning_content": "thinking",
        "tool_call_id": "tool_use_id",
        "tool_calls": "tool_use",
    },
)
"""The fields of chats, for a client of Anthropic's Messages."""
RESPONSES = FieldNames(
    {
        "continue_final_message": "input",
        "logprobs": "top_logprobs",
        "max_completion_tokens": "max_output_tokens",
        "max_tokens": "max_output_tokens",
        "messages": "input",
        "prompt": "input",
        "reasoning_effort": "reasoning.effort",
        "response_format": "text.format",
        "verbosity": "text.verbosity",
    },
    {"reasoning_content": "reasoning", "tool_call_id": "call_id", "tool_calls": "function_call"},
)
"""The fields of chats, for a client of Responses."""
CONTENTS = FieldNames(
    {
        "add_generation_prompt": "contents",
        "continue_final_message": "contents",
        "frequency_penalty": "generationConfig.frequencyPenalty",
        "input": "requests",
        "logprobs": "generationConfig.responseLogprobs",
        "max_completion_tokens": "generationConfig.maxOutputTokens",
        "max_tokens": "generationConfig.maxOutputTokens",
        "messages": "contents",
        "n": "generationConfig.candidateCount",
        "parallel_tool_calls": "toolConfig",
        "presence_penalty": "generationConfig.presencePenalty",
        "prompt": "contents",
        "reasoning_effort": "generationConfig.thinkingConfig",
        "response_format": "generationConfig.responseSchema",
        "seed": "generationConfig.seed",
        "service_tier": "serviceTier",
        "stop": "generationConfig.stopSequences",
        "stream_options": "contents",
        "system": "systemInstruction",
        "temperature": "generationConfig.temperature",
        "thinking": "generationConfig.thinkingConfig",
        "tool_choice": "toolConfig",
        "top_k": "generationConfig.topK",
        "top_logprobs": "generationConfig.logprobs",
        "top_p": "generationConfig.topP",
    },
    {
        "file_data": "inlineData",
        "image_url": "inlineData",
        "reasoning_content": "thought",
        "tool_call_id": "functionResponse",
        "tool_calls": "functionCall",
    },
)
"""The fields of chats, for a client of Gemini's API."""
CHAT = FieldNames(
    {
        "output_config": "response_format",
        "prompt": "messages",
        "stop_sequences": "stop",
        "system": "messages",
    },
    {
        "input_schema": "parameters",
        "tool_result": "tool",
        "tool_use": "tool_calls",
        "tool_use_id": "tool_call_id",
    },
)
"""The fields of Anthropic's Messages and of completions, for a client of chats."""
COMPLETION = FieldNames({"max_completion_tokens": "max_tokens", "messages": "prompt"}, {})
"""The fields of chats, for a client of completions."""
