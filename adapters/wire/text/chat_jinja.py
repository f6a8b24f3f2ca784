"""The Jinja environment of chat templates, compatible with Hugging Face's
(https://huggingface.co/docs/transformers/chat_templating). It is a sandbox, since templates are downloaded.

A template is a program, so the environment bounds one rendering: the steps (iterations of loops and calls), the length
of a repeated text, and the length of the result.
"""

import json
import threading
from collections.abc import Iterable, Sized
from datetime import datetime
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

MAX_STEPS = 200_000
"""Steps of one rendering: sufficient for thousands of messages."""
MAX_TEXT = 16 * 1024 * 1024
"""Characters of the result, and of a repeated text."""
MAX_POWER = 1_000
_COUNTED = "_counted"


class ChatEnvironment(ImmutableSandboxedEnvironment):
    """Provides `raise_exception`, `strftime_now`, `tojson`, `break`, `continue` and `generation` to templates."""

    intercepted_binops = frozenset(("*", "**"))

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, loopcontrols])
        self._steps = threading.local()  # several threads render concurrently
        self.filters["tojson"] = _to_json
        self.filters[_COUNTED] = self._counted
        self.globals["raise_exception"] = _raise_exception
        self.globals["strftime_now"] = lambda layout: datetime.now().strftime(layout)
        self.globals["namespace"] = _PublicNamespace

    def rendered(self, template: jinja2.Template, values: dict[str, Any]) -> str:
        """Render a template. Raises any exception of the template, and `SecurityError` if it exceeds a bound."""
        self._steps.left = MAX_STEPS
        pieces, size = [], 0
        for piece in template.generate(values):
            size += len(piece)
            if size > MAX_TEXT:
                raise SecurityError("the prompt becomes too long")
            pieces.append(piece)
        return "".join(pieces)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        """Parse a template, and count the iterations of its loops."""
        tree = super()._parse(source, name, filename)
        for loop in list(tree.find_all(nodes.For)):
            loop.iter = nodes.Filter(loop.iter, _COUNTED, [], [], None, None, lineno=loop.lineno)
        return tree

    def _counted(self, items: Any) -> Any:
        if not isinstance(items, Sized):
            return self._one_by_one(items)
        self._spend(len(items))
        return items

    def _one_by_one(self, items: Iterable[Any]) -> Iterable[Any]:
        for item in items:
            self._spend(1)
            yield item

    def _spend(self, steps: int) -> None:
        self._steps.left -= steps
        if self._steps.left < 0:
            raise SecurityError("the template takes too many steps")

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805 - as in the base class
        __self._spend(1)
        return super().call(__context, __obj, *args, **kwargs)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        self._spend(1)
        if operator == "**":
            too_much = max(abs(left), abs(right)) > MAX_POWER
        else:
            length = len(left) if isinstance(left, Sized) else len(right) if isinstance(right, Sized) else 0
            times = right if isinstance(right, int) else left if isinstance(left, int) else 0
            too_much = length * times > MAX_TEXT
        if too_much:
            raise SecurityError(f"`{operator}` makes too much")
        return super().call_binop(context, operator, left, right)


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
