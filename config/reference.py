"""The reference page: every field of the file with its type, default and description.

``python -m config.reference`` prints it; ``docs/configuration.md`` is that text, and a test compares the two.
"""

import re
from collections.abc import Callable, Iterator
from types import NoneType, UnionType
from typing import Annotated, Any, ForwardRef, Literal, Union, get_args, get_origin, get_type_hints

from annotated_types import Ge, Gt, Le, Lt, MaxLen, MinLen
from pydantic import BeforeValidator, PlainValidator, SecretStr
from pydantic.fields import FieldInfo

from config.jsonschema import descriptions
from config.schema import money, units, when
from config.schema.config import Config
from config.schema.pipelines.call import CodeFile
from config.schema.protocols import BUILT_IN, AnyProtocol, ProtocolConfig
from config.schema.runtimes import KINDS, AnyRuntime
from config.schema.section import Section
from config.schema.text import Shape
from config.schema.units import format_duration

_HEAD = """\
# Configuration reference

You look for a field of the YAML file, its type, unit or default. Every field is here, in the order of the file. The
smallest file that works is:

```yaml
version: 1
pools: [{name: vllm, endpoints: [http://127.0.0.1:8000]}]
models: [{name: chat, routes: [{to: vllm}]}]
tenants: [{name: acme, models: [chat]}]
```

`headrace schema` prints this page as a JSON Schema, for editors. `headrace check FILE` reports every mistake with its
line. You can change the file [while the gateway runs](operations.md#configuration). [Policies by example](policies.md)
show routing, limits and balancing.

This page is generated from the schema: `python -m config.reference > docs/configuration.md`.

## Types and units

| type | written as | unit |
|---|---|---|
| duration | `250ms`, `10s`, `5m`, `1h`, `30d` | required in the value |
| size | `64KiB`, `10MiB`, `2GB` | required in the value; `KiB` is 1024 bytes, `kB` 1000 |
| percentage | `20%` | of what the description names |
| rate | `10/s`, `600/min`, `200k/min`, `5M/month` | per `s`, `min`, `h`, `d` or `month` (30 days); also the burst |
| byte rate | `64KiB/s`, `10MiB/min` | the same, with a size |
| price of tokens | `0.15 usd/1M`, `0.002 usd/1k` | a currency, for 1M or 1k tokens |
| amount | `0.001 usd` | a currency |
| budget | `50 usd/month` | a currency, for each hour, day or month of the calendar in UTC |
| address | `127.0.0.1:8080`, `[::1]:8080` | |
| network | `10.0.0.0/8`, `fd00::/8`, `192.0.2.7` | addresses, as a network or as one |
| name | `chat`, `org/model:7b` | up to 128 letters, digits and `. _ : / -`, the first a letter or a digit |
| glob | `gpt-*` | `*`, `?`, `[ab]` and `[!ab]`; matches the whole name |
| secret | `${NAME}`, `file:PATH` | never written inline |
| integer, number | `4`, `0.5` | named in the description |

`${NAME}` is replaced by an environment variable anywhere in the file, `${NAME:-text}` with a default. A field with the
default *required* must be written; *none* means that it is absent. Unknown fields are errors.
"""

_PARSERS: dict[Callable[..., object], str] = {
    units.parse_duration: "duration",
    units.parse_size: "size",
    units.parse_percent: "percentage",
    units.parse_rate: "rate",
    units.parse_byte_rate: "byte rate",
    units.parse_size_or_share: "size or percentage",
    units.parse_host_port: "address",
    units.parse_network: "network",
    money.parse_token_price: "price of tokens",
    money.parse_amount: "amount",
    money.parse_budget: "budget",
    when.parse_zone: "time zone",
}
_PLAIN = {
    str: "text",
    int: "integer",
    float: "number",
    bool: "`true` or `false`",
    SecretStr: "secret",
    Any: "any value",
    CodeFile: "path of a Python file",
}
_BOUNDS: tuple[tuple[type, str, str], ...] = (
    (Ge, "ge", "≥ {}"), (Gt, "gt", "> {}"), (Le, "le", "≤ {}"), (Lt, "lt", "< {}"),
    (MinLen, "min_length", "length ≥ {}"), (MaxLen, "max_length", "length ≤ {}"),
)  # fmt: skip
_Link = Callable[[type[Section], str], str]
"""Returns a link to a section, for a suffix to the path of the field."""


def page() -> str:
    """The whole page as Markdown."""
    return "\n".join([_HEAD, *_Walk().section(Config, "The file", "")])


class _Walk:
    """Renders each section once, at its first occurrence; later fields link to it."""

    def __init__(self) -> None:
        self._titles: dict[type[Section], str] = {}
        self._waiting: list[tuple[type[Section], str]] = []

    def section(self, section: type[Section], title: str, path: str) -> Iterator[str]:
        """A section with its fields, then the sections that its fields introduce."""
        waiting, self._waiting = self._waiting, []
        yield f"{'###' if '.' in path else '##'} {title}\n"
        yield f"{_text(section.__doc__)}\n"
        yield "| field | type | default | description |\n|---|---|---|---|"
        yield from (self._row(section, name, field, path) for name, field in section.model_fields.items())
        yield ""
        introduced, self._waiting = self._waiting, waiting
        for each, its_path in introduced:
            yield from self.section(each, f"`{its_path}`", its_path)

    def _row(self, section: type[Section], name: str, field: FieldInfo, path: str) -> str:
        key = field.alias or name
        full = f"{path}.{key}" if path else key

        def link(target: type[Section], suffix: str) -> str:
            if target not in self._titles:
                self._titles[target] = full + suffix
                self._waiting.append((target, full + suffix))
            return f"[{self._titles[target]}](#{slug(self._titles[target])})"

        unresolved = isinstance(field.annotation, ForwardRef)
        annotation = get_type_hints(section, include_extras=True)[name] if unresolved else field.annotation
        kind = _kind(annotation, field.metadata, link, "")
        return f"| `{key}` | {kind} | {_default(section, name, field)} | {_text(descriptions(section).get(name))} |"


def slug(title: str) -> str:
    """A heading's anchor, as GitHub derives it."""
    return re.sub(r"[^a-z0-9 _-]", "", title.lower()).replace(" ", "-")


def _kind(annotation: Any, metadata: list[Any], link: _Link, suffix: str) -> str:
    """A type in words, with its bounds."""
    for union, sections in ((AnyProtocol, BUILT_IN), (AnyRuntime, KINDS)):
        if _same(annotation, metadata, union):
            return " · ".join(link(section, f"{suffix}: {name}") for name, section in sections.items())
    text = _base(annotation, metadata, link, suffix)
    show = format_duration if text == "duration" else "{:,}".format
    bounds = [
        form.format(show(getattr(one, attribute)))
        for one in metadata
        for kind, attribute, form in _BOUNDS
        if type(one) is kind
    ]
    return ", ".join([text, *bounds])


def _base(annotation: Any, metadata: list[Any], link: _Link, suffix: str) -> str:
    for one in metadata:
        if isinstance(one, Shape):
            return one.expected.split(": ")[0]
        if isinstance(one, BeforeValidator | PlainValidator) and one.func in _PARSERS:
            return _PARSERS[one.func]
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _kind(arguments[0], list(arguments[1:]), link, suffix)
    if origin is Literal:
        return " · ".join(f"`{str(each).lower() if isinstance(each, bool) else each}`" for each in arguments)
    if origin in (Union, UnionType):
        texts = [_kind(each, [], link, suffix) for each in arguments if each is not NoneType]
        return " or ".join(dict.fromkeys(texts))
    if origin is tuple:
        return f"list of {_kind(arguments[0], [], link, suffix + '[]')}"
    if origin is dict:
        return f"map of {_kind(arguments[0], [], link, suffix)} to {_kind(arguments[1], [], link, suffix)}"
    if isinstance(annotation, type) and issubclass(annotation, Section) and annotation not in _PLAIN:
        return link(annotation, suffix)
    return _PLAIN[annotation]


def _same(annotation: Any, metadata: list[Any], union: Any) -> bool:
    """Whether an annotation is one of the two tagged unions, which typing has split into its parts."""
    bare, *tags = get_args(union)
    return bool(annotation == union or (annotation == bare and any(tag in metadata for tag in tags)))


def _default(section: type[Section], name: str, field: FieldInfo) -> str:
    if field.is_required():
        return "*required*"
    default = field.get_default(call_default_factory=True)
    if isinstance(default, ProtocolConfig):
        return f"`{default.name}`"
    if isinstance(default, Section):
        return "its defaults"
    value = section.model_construct().model_dump(mode="json", warnings=False)[name]
    if value is None:
        return "*none*"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, list | dict) and value:
        return ", ".join(f"`{each}`" for each in value)
    return f"`{value}`" if value != "" else '`""`'


def _text(description: str | None) -> str:
    """One line of Markdown."""
    return " ".join((description or "").split()).replace("``", "`").replace("|", "\\|")


if __name__ == "__main__":
    print(page())
