"""Requests of OpenAI's completion and chat APIs (specification 2.3): bytes in, validated values out.

`response_format` and vLLM's `structured_outputs` become one Grammar. A complete answer matches it; one that is cut by
its length, by a stop string or by a stop token is cut there.
"""

import re
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from adapters.errors import CallerError
from runtimes.llm.api.messages import MAX_MESSAGES, Message
from runtimes.llm.api.prediction import Prediction
from runtimes.llm.api.sampling_fields import Count, SamplingFields, TokenId, check_ids
from runtimes.llm.api.thinking_fields import Effort, Thinking, ThinkingSettings, Variables, variables_of
from runtimes.llm.api.tools import MAX_TOOLS, Tool, ToolChoice, ToolUse, tool_use
from runtimes.llm.grammar.constraint import Grammar
from runtimes.llm.grammar.json_schema import WHITESPACE, of_schema
from runtimes.llm.sampling_params import MAX_TOP_LOGPROBS

MAX_CHOICES = 10_000
_SIMPLE = ("json", "json_object", "regex", "choice", "grammar")
Options = Annotated[list[str], Meta(min_length=1, max_length=MAX_CHOICES)]
_CLASSES = {
    "d": "[0-9]", "w": "[0-9A-Za-z_]", "s": r"[\t\n\v\f\r ]",
    "D": "[^0-9]", "W": "[^0-9A-Za-z_]", "S": r"[^\t\n\v\f\r ]",
}  # fmt: skip
_encode = msgspec.json.Encoder().encode


class JsonSchema(msgspec.Struct, forbid_unknown_fields=True):
    """With `strict` a schema with a keyword that cannot be enforced is refused; otherwise that keyword is skipped."""

    name: Annotated[str, Meta(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]
    schema: dict[str, Any]
    description: str | None = None
    strict: bool | None = None


class ResponseFormat(msgspec.Struct, forbid_unknown_fields=True):
    """OpenAI's `response_format`."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None

    def grammar(self) -> Grammar | None:
        """The grammar. Raises CallerError."""
        if (self.json_schema is not None) != (self.type == "json_schema"):
            message = "`response_format.json_schema` belongs to type json_schema, which must have it."
            raise CallerError(message, param="response_format.json_schema")
        if self.type == "json_object":
            return of_schema({"type": "object"}, "response_format")
        if self.json_schema is None:
            return None
        strict = bool(self.json_schema.strict)
        return of_schema(self.json_schema.schema, "response_format.json_schema.schema", strict=strict)


class StructuredOutputs(msgspec.Struct, forbid_unknown_fields=True):
    """vLLM's field: exactly one of the first five is set. Every keyword of a `json` schema is enforced."""

    json: dict[str, Any] | str | None = None
    json_object: bool | None = None
    regex: str | None = None
    choice: Options | None = None
    grammar: str | None = None
    whitespace_pattern: str | None = None
    disable_any_whitespace: bool | None = None

    @property
    def given(self) -> list[str]:
        """The names of the first five fields that are set."""
        return [name for name in _SIMPLE if getattr(self, name) not in (None, False)]

    def to_grammar(self, prefix: str = "structured_outputs.") -> Grammar:
        """The grammar. `prefix` precedes the fields' names in errors. Raises CallerError."""
        if len(given := self.given) != 1:
            names = ", ".join(f"`{prefix}{name}`" for name in given or _SIMPLE)
            param = prefix[:-1] if prefix.endswith(".") else f"{prefix}{(given or _SIMPLE)[0]}"
            raise CallerError(f"Give one of {names}, not {len(given)}.", param=param)
        param = f"{prefix}{given[0]}"
        if self.regex is not None:
            return Grammar("regex", ascii_classes(self.regex), param)
        if self.grammar is not None:
            return Grammar("grammar", self.grammar, param)
        if self.choice is not None:
            return Grammar("choice", _encode(self.choice).decode(), param)
        schema = {"type": "object"} if self.json is None else _schema(self.json, param)
        whitespace = "" if self.disable_any_whitespace else ascii_classes(self.whitespace_pattern or WHITESPACE)
        return of_schema(schema, param, strict=True, whitespace=whitespace)


def ascii_classes(regex: str) -> str:
    r"""The regex with `\d`, `\w` and `\s` as ASCII, as vLLM reads them. llguidance's are Unicode's."""
    return re.sub(r"\\(.)", lambda escape: _CLASSES.get(escape[1], escape[0]), regex, flags=re.DOTALL)


def _schema(written: dict[str, Any] | str, param: str) -> dict[str, Any]:
    if isinstance(written, dict):
        return written
    try:
        return msgspec.json.decode(written, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError) as error:
        raise CallerError(f"`{param}` is not a JSON object: {error}.", param=param) from None


MAX_BEST_OF = 20


class StreamOptions(msgspec.Struct, forbid_unknown_fields=True):
    """`include_obfuscation` pads events against traffic analysis at OpenAI; here it is always off."""

    include_usage: bool | None = None
    include_obfuscation: Literal[False] | None = None


class GenerateBody(SamplingFields, kw_only=True):
    """The fields that both APIs share. `cache_salt` is vLLM's: only requests with the same salt share cached pages of
    their prompts.

    `continue_token_ids` are the first tokens of an answer, as an earlier stream with `return_token_ids` reported them.
    The stream then begins after them, and equals the rest of that stream. Limits and usage are those of the whole
    answer.
    """

    model: str | None = None
    cache_salt: Annotated[str, Meta(max_length=1024)] | None = None
    priority: Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)] | None = None
    return_token_ids: bool | None = None
    continue_token_ids: list[TokenId] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: dict[str, Any] | str | None = None
    guided_regex: str | None = None
    guided_choice: Options | None = None
    guided_grammar: str | None = None
    guided_whitespace_pattern: str | None = None
    guided_decoding_backend: str | None = None
    """Names a library. This runtime has only one, so the field has no effect."""

    def grammar(self) -> Grammar | None:
        """The grammar that the answer follows; None for free text. Raises CallerError."""
        given = {
            "response_format": None if self.response_format is None else self.response_format.grammar(),
            "structured_outputs": None if self.structured_outputs is None else self.structured_outputs.to_grammar(),
            "guided_…": self._guided(),
        }
        grammars = {name: grammar for name, grammar in given.items() if grammar is not None}
        if len(grammars) > 1:
            *_, last = grammars.values()
            message = f"Give one of {', '.join(f'`{name}`' for name in grammars)}."
            raise CallerError(message, param=last.param.partition(".")[0])
        return self.ending_by_itself(next(iter(grammars.values()), None))

    def _guided(self) -> Grammar | None:
        """`structured_outputs` under the field names that vLLM used before 0.12."""
        outputs = StructuredOutputs(
            self.guided_json, None, self.guided_regex, self.guided_choice, self.guided_grammar,
            self.guided_whitespace_pattern,
        )  # fmt: skip
        return outputs.to_grammar("guided_") if outputs.given or outputs.whitespace_pattern is not None else None

    def ending_by_itself(self, grammar: Grammar | None) -> Grammar | None:
        """The grammar. Raises CallerError if other fields forbid the answer to end with it."""
        for name in ("ignore_eos", "min_tokens"):
            if grammar is not None and getattr(self, name):
                raise CallerError(f"`{name}` and `{grammar.param}` exclude each other: leave one out.", param=name)
        return grammar

    def check_tokens(self, vocab_size: int) -> None:
        super().check_tokens(vocab_size)
        check_ids("continue_token_ids", self.continue_token_ids or (), vocab_size)

    @property
    def includes_usage(self) -> bool:
        """Whether a stream ends with a chunk of its usage."""
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    @property
    def num_logprobs(self) -> int | None:
        """The number of likeliest tokens whose log-probabilities are reported beside the token's own, or None."""
        return None

    @property
    def candidates(self) -> int:
        """The number of generated answers to a prompt; the best `n` are returned."""
        return self.n or 1

    @property
    def predicted(self) -> str:
        """The text that the client expects in the answer."""
        return ""

    @property
    def echoes(self) -> bool:
        """Whether an answer begins with its prompt."""
        return False

    @property
    def echoes_logprobs(self) -> bool:
        """Whether the prompt's log-probabilities are reported too."""
        return self.echoes and self.num_logprobs is not None

    def written(self, prompt: int) -> str | None:
        """The prompt as text, if it was a text."""
        return None


class ChatBody(GenerateBody, kw_only=True):
    """`POST /v1/chat/completions`.

    `continue_final_message` and `add_generation_prompt` are vLLM's: the answer continues the last message, which is the
    assistant's.
    """

    messages: Annotated[list[Message], Meta(min_length=1, max_length=MAX_MESSAGES)]
    tools: Annotated[list[Tool], Meta(max_length=MAX_TOOLS)] | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    max_completion_tokens: Count | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    continue_final_message: bool | None = None
    add_generation_prompt: bool | None = None
    chat_template_kwargs: Variables | None = None
    enable_thinking: bool | None = None
    reasoning_effort: Effort | None = None
    thinking: Thinking | None = None
    thinking_token_budget: Count | None = None
    thinking_budget: Count | None = None
    max_thinking_tokens: Count | None = None
    include_reasoning: bool | None = None
    prediction: Prediction | None = None

    @property
    def predicted(self) -> str:
        return "" if self.prediction is None else self.prediction.text

    def thinking_options(self) -> ThinkingSettings:
        """The settings of thinking. Raises CallerError."""
        enabled = self.enable_thinking
        if enabled is None and self.thinking is not None:
            enabled = self.thinking.type != "disabled"
        if enabled is None and self.reasoning_effort is not None:
            enabled = self.reasoning_effort != "none"
        in_thinking = None if self.thinking is None else self.thinking.budget_tokens
        given = (self.thinking_token_budget, self.thinking_budget, self.max_thinking_tokens, in_thinking)
        budgets = [budget for budget in given if budget is not None]
        variables = variables_of(enabled, self.reasoning_effort, self.chat_template_kwargs)
        return ThinkingSettings(variables, min(budgets, default=None), self.include_reasoning is not False)

    def tool_use(self) -> ToolUse | None:
        """The grammar. Raises CallerError."""
        return tool_use(self.tools or (), self.tool_choice, self.parallel_tool_calls)

    def __post_init__(self) -> None:
        if self.max_completion_tokens is not None:
            self.max_tokens = self.max_completion_tokens

    @property
    def num_logprobs(self) -> int | None:
        return (self.top_logprobs or 0) if self.logprobs else None

    def check(self) -> None:
        super().check()
        if self.top_logprobs and not self.logprobs:
            raise CallerError("`top_logprobs` needs `logprobs`: true.", param="top_logprobs")


class CompletionBody(GenerateBody, kw_only=True):
    """`POST /v1/completions`. OpenAI reports up to 5 likeliest tokens, vLLM 20."""

    prompt: str | Annotated[list[str | int | list[int]], Meta(min_length=1)]
    logprobs: bool | Annotated[int, Meta(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    best_of: Annotated[int, Meta(ge=1, le=MAX_BEST_OF)] | None = None
    echo: bool | None = None

    @property
    def num_logprobs(self) -> int | None:
        return None if self.logprobs is False else self.logprobs

    @property
    def candidates(self) -> int:
        return self.best_of or self.n or 1

    @property
    def echoes(self) -> bool:
        return self.echo or False

    def written(self, prompt: int) -> str | None:
        return written if isinstance(written := self.prompts[prompt], str) else None

    def check(self) -> None:
        super().check()
        if self.logprobs is True:
            raise CallerError(
                "`logprobs` must be a number here: how many likeliest tokens to report.", param="logprobs"
            )
        if self.best_of is not None and self.best_of < (self.n or 1):
            raise CallerError("`best_of` must be `n` or more.", param="best_of")
        if self.candidates > (self.n or 1) and self.stream:
            raise CallerError(
                "`best_of` above `n` needs `stream`: false: answers are ranked at the end.", param="best_of"
            )
        if self.echo and self.continue_token_ids:
            raise CallerError("`echo` and `continue_token_ids` exclude each other.", param="echo")

    @property
    def prompts(self) -> list[str | list[int]]:
        """One or several, each a text or token ids. Raises CallerError for a mixture."""
        prompt = self.prompt
        if isinstance(prompt, str):
            return [prompt]
        kinds = {type(item) for item in prompt}
        if len(kinds) > 1:
            raise CallerError("`prompt` must be all texts, all token ids or all lists of token ids.", param="prompt")
        if kinds == {int}:
            return [[item for item in prompt if isinstance(item, int)]]
        return [item for item in prompt if not isinstance(item, int)]
