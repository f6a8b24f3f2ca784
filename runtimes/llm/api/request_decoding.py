"""Decodes requests of OpenAI's completion and chat APIs: bytes in, checked values out.

Nothing is silently ignored. A parameter that this runtime does not support is accepted only with the value that has no
effect. Those of other servers' clients have their own rules (`client_fields`), and unknown ones too (`unknown_fields`).
"""

import functools
import re
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from adapters import offload
from adapters.errors import CallerError, ContextTooLong
from adapters.ignored_fields import NAMES, IgnoredFields, allowed_tools
from adapters.wire.openai.known_fields import DefinedFields, Reporting
from runtimes.llm.api.client_fields import renamed
from runtimes.llm.api.messages import check_continued, check_messages
from runtimes.llm.api.requests import ChatBody, CompletionBody, GenerateBody
from runtimes.llm.api.sampling_fields import MAX_CHOICES
from runtimes.llm.api.unknown_fields import GENERATING, UnknownFields

# Unsupported fields, with their values that have no effect; null is always accepted.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "audio": (),
    "best_of": (1,),
    "echo": (False,),
    "function_call": ("none", "auto"),
    "functions": ([],),
    "modalities": (["text"],),
    "prediction": (),
    "metadata": ({},),
    "store": (False,),
    "suffix": ("",),
    "top_logprobs": (0,),
    "verbosity": ("medium",),
    "web_search_options": (),
}
# Accounting and caching hints, which change no answer.
_BOOKKEEPING = frozenset(
    {
        "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention",
        "safety_identifier", "service_tier", "user",
    }
)  # fmt: skip


T = TypeVar("T")
B = TypeVar("B", bound=GenerateBody)
_encode = msgspec.json.Encoder().encode


async def decoded(decode: Callable[[bytes, IgnoredFields], T], body: bytes, hints: IgnoredFields) -> T:
    """The result of `decode`, from another process if the body has many values. Raises CallerError."""
    request, updated = await offload.parse(body, _with_hints, decode, body, hints)
    hints.ignored = updated.ignored
    return request


def _with_hints(
    decode: Callable[[bytes, IgnoredFields], T], body: bytes, hints: IgnoredFields
) -> tuple[T, IgnoredFields]:
    return decode(body, hints), hints


def decode_chat(body: bytes, hints: IgnoredFields | None = None) -> ChatBody:
    """Raises CallerError that names the parameter at fault."""
    hints = hints or IgnoredFields()
    decoded = _decode(body, ChatBody, hints)
    check_messages(decoded.messages)
    if any(part.detail not in (None, "auto") for message in decoded.messages for part in message.pictures):
        hints.ignore("detail")
    if decoded.continue_token_ids and decoded.tools:
        raise CallerError("`continue_token_ids` is for answers without `tools`.", param="continue_token_ids")
    if decoded.continue_final_message:
        if decoded.add_generation_prompt:
            message = "`continue_final_message` and `add_generation_prompt` exclude each other."
            raise CallerError(message, param="continue_final_message")
        check_continued(decoded.messages)
    return decoded


def decode_completion(body: bytes, hints: IgnoredFields | None = None, context: int | None = None) -> CompletionBody:
    """Raises CallerError that names the parameter at fault, and ContextTooLong for more token ids than `context`."""
    decoded = _decode(body, CompletionBody, hints or IgnoredFields())
    prompts = decoded.prompts
    if context is not None and any(len(prompt) > context for prompt in prompts if isinstance(prompt, list)):
        # Here, in the worker process: the event loop creates and reads no list of that length.
        message = f"`prompt` has more than {context} tokens; this model's context has {context}."
        raise ContextTooLong(message, param="prompt")
    if len(prompts) * decoded.candidates > MAX_CHOICES:
        several = "n" if decoded.best_of is None else "best_of"
        raise CallerError(f"prompts times `{several}` must be at most {MAX_CHOICES}.", param=several)
    if decoded.continue_token_ids and len(prompts) > 1:
        raise CallerError("`continue_token_ids` is one answer: give one prompt.", param="prompt")
    return decoded


def _decode(body: bytes, kind: type[B], hints: IgnoredFields) -> B:
    try:
        fields = msgspec.json.decode(body, type=dict[str, Any])
    except msgspec.ValidationError:
        raise CallerError("The body must be a JSON object.", code="invalid_json") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CallerError(f"The body is not valid JSON: {error}.", code="invalid_json") from None
    own = frozenset(kind.__struct_fields__)
    fields = renamed(fields, own, hints)
    unknown = {name: fields.pop(name) for name in sorted(fields.keys() - own)}
    if "messages" in own and unknown.get("add_special_tokens") is False:
        del unknown["add_special_tokens"]  # a chat's template writes them
    _ignore(unknown, hints)
    if "tool_choice" in own:
        fields = allowed_tools(fields)
    decoded = _defined(fields, kind, hints)
    decoded.stop = hints.stops(decoded.stop)
    decoded.check()
    if decoded.stream and decoded.prompt_logprobs is not None:
        raise CallerError("`prompt_logprobs` needs `stream`: false.", param="prompt_logprobs")
    for name in ("stream_options", "continue_token_ids"):
        if fields.get(name) and not decoded.stream:
            raise CallerError(f"`{name}` needs `stream`: true.", param=name)
    if decoded.continue_token_ids and (decoded.n or 1) > 1:
        raise CallerError("`continue_token_ids` is one answer: `n` must be 1.", param="n")
    return decoded


def _defined(fields: dict[str, Any], kind: type[B], hints: IgnoredFields) -> B:
    """The body of these fields. Only one that is invalid, or has unknown fields within messages, tools or options, is
    searched for them."""
    try:
        try:
            return msgspec.convert(fields, kind)
        except msgspec.ValidationError:
            decoder: Reporting[B] = _defined_fields(kind).reporting(UnknownFields(GENERATING, hints))
            return decoder.decode(_encode(fields))
    except msgspec.ValidationError as error:
        raise _invalid(str(error)) from None
    except (msgspec.DecodeError, RecursionError) as error:  # values that are nested too deeply
        raise CallerError(f"The body is not valid: {error}.") from None


@functools.cache
def _defined_fields(kind: type[Any]) -> DefinedFields[Any]:
    return DefinedFields(kind)


def _ignore(fields: dict[str, Any], hints: IgnoredFields) -> None:
    """Decide about the fields of a body that its kind does not have. Raises CallerError."""
    unknown = {name: value for name, value in fields.items() if name not in _NEUTRAL and name not in _BOOKKEEPING}
    UnknownFields(GENERATING, hints).ignore_given(unknown)
    for name in fields.keys() & _NEUTRAL.keys():
        _check_unsupported(name, fields[name], hints)


def _check_unsupported(name: str, value: Any, hints: IgnoredFields) -> None:
    # 0 == False, yet `logprobs: 0` has an effect and `logprobs: false` has none.
    neutral = any(value == one and isinstance(value, bool) == isinstance(one, bool) for one in _NEUTRAL[name])
    if value is None or neutral:
        return
    if name not in NAMES:
        message = f"`{name}` is not supported by this server: leave it out."
        raise CallerError(message, param=name, code="unsupported_parameter")
    hints.ignore(name)


def _invalid(message: str) -> CallerError:
    """The error of a message of msgspec: "Expected `int`, got `str` - at `$.max_tokens`"."""
    problem, _, where = message.partition(" - at ")
    missing = re.fullmatch(r"Object (?:missing required|contains unknown) field `(\w+)`", problem)
    path = [part for part in (where.strip("`").removeprefix("$").lstrip("."), missing and missing[1]) if part]
    param = ".".join(path)
    return CallerError(f"`{param}` is not valid: {problem}." if param else f"{problem}.", param=param or None)
