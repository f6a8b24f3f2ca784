"""The Jinja environment of chat templates, compatible with Hugging Face's
(https://huggingface.co/docs/transformers/chat_templating). It is a bounded sandbox, since templates are downloaded.
"""

import json
from datetime import datetime
from typing import Annotated, Any, NoReturn

import jinja2
import msgspec
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.utils import Namespace
from msgspec import Meta, Raw

from adapters.errors import CallerError
from adapters.wire import decoding
from adapters.wire.text.bounded_jinja import BoundedEnvironment

MAX_TEXT = 16 * 1024 * 1024
"""Characters of a prompt, and of each text that a template makes."""
MAX_LAYOUT = 256
"""Characters of the layout of a date."""


class ChatEnvironment(BoundedEnvironment):
    """Provides `raise_exception`, `strftime_now`, `tojson`, `break`, `continue` and `generation` to templates."""

    def __init__(self, longest: int = MAX_TEXT) -> None:
        super().__init__(longest, trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, loopcontrols])
        self.filters["tojson"] = _to_json
        self.bound_filters()
        self.globals["raise_exception"] = _raise_exception
        self.globals["strftime_now"] = _now
        self.globals["namespace"] = _PublicNamespace


class GenerationTag(Extension):
    """The tag `{% generation %}`, which marks the model's output for training. Rendering ignores the mark."""

    tags = frozenset(("generation",))  # type: ignore[assignment]  # Jinja only tests membership

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _PublicNamespace(Namespace):
    """A namespace without names that give access to Python's internals."""

    def __init__(*args: Any, **kwargs: Any) -> None:  # as in the base class: `namespace(self=…)` is a valid name
        self, rest = args[0], args[1:]
        values = dict(*rest, **kwargs)
        for name in values:
            _PublicNamespace._check(name)
        Namespace.__init__(self, values)

    def __setitem__(self, name: str, value: Any) -> None:
        _PublicNamespace._check(name)  # a namespace's attributes are a template's own values
        Namespace.__setitem__(self, name, value)

    @staticmethod
    def _check(name: object) -> None:
        if isinstance(name, str) and name.startswith("_"):
            raise SecurityError(f"a namespace has no names such as {name!r}")


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Encode a value as JSON without the HTML escapes of Jinja's own filter, which are absent from training data."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _now(layout: str) -> str:
    if len(layout) > MAX_LAYOUT:
        raise SecurityError("the layout of a date is too long")
    return datetime.now().strftime(layout)


# Converts the messages of a conversation to the form of chat templates.

_ALIASES = {"developer": "system"}
"""OpenAI's newer name of a role, which templates do not support."""


class Part(msgspec.Struct):
    """A part of a message's content. Templates support only texts."""

    type: str
    text: str | None = None


class TemplateMessage(msgspec.Struct, omit_defaults=True):
    """One message of a conversation."""

    role: Annotated[str, Meta(min_length=1, max_length=64)]
    content: str | list[Part] | None = None
    name: str | None = None
    refusal: str | None = None
    tool_calls: list[Any] | None = None
    tool_call_id: str | None = None
    function_call: Any = None
    reasoning_content: str | None = None


_messages = msgspec.json.Decoder(Annotated[list[TemplateMessage], Meta(min_length=1)]).decode


def for_template(raw: Raw, *, parts: bool = False) -> list[dict[str, Any]]:
    """Decode messages. A list of texts is joined unless the template supports `parts`. Raises `CallerError`."""
    try:
        messages = _messages(raw)
    except decoding.MALFORMED_JSON as error:
        raise CallerError(f"`messages` is not valid: {error}.", param="messages") from None
    return [_template_fields(message, parts) for message in messages]


def _template_fields(message: TemplateMessage, parts: bool) -> dict[str, Any]:
    if message.tool_calls or message.function_call is not None or message.role in ("tool", "function"):
        raise CallerError(
            "The model's servers do not support tools: no message may contain a call or its result.", param="messages"
        )
    fields: dict[str, Any] = {"role": _ALIASES.get(message.role, message.role), "content": _content(message, parts)}
    if message.name is not None:
        fields["name"] = message.name
    if message.reasoning_content is not None:
        fields["reasoning_content"] = message.reasoning_content
    return fields


def _content(message: TemplateMessage, parts: bool) -> str | list[dict[str, str]]:
    content = message.content
    if isinstance(content, str):
        return content
    if content is None:
        return message.refusal or ""
    texts = [_text(part) for part in content]
    if parts:
        return [{"type": "text", "text": text} for text in texts]
    return "\n".join(texts)


def _text(part: Part) -> str:
    if part.type not in ("text", "input_text", "refusal") or part.text is None:
        raise CallerError(f"The model's servers accept text only, not `{part.type[:32]}`.", param="messages")
    return part.text
