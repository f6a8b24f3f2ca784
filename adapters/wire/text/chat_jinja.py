"""The Jinja environment of chat templates, compatible with Hugging Face's
(https://huggingface.co/docs/transformers/chat_templating). It is a bounded sandbox, since templates are downloaded.
"""

import json
from datetime import datetime
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.utils import Namespace

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
