"""YAML text → plain data with the line of each key and value.

A strict subset of YAML 1.2's core schema, without surprising types: ``no`` and ``2027-06-30`` are text, a key may
occur once, tags are rejected. Anchors and aliases work, within bounds.

The checks between sections read the data with a cursor that tolerates a wrong shape: a mistake in one pool does not
hide a mistake in a route.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeVar

import yaml
from pydantic import ValidationError

from config.place import Place, field_at, written
from config.problem import ConfigError, Problem

MAX_BYTES = 8 * 1024**2
MAX_DEPTH = 32
MAX_NODES = 500_000  # after the expansion of aliases

_CONSTANTS = {"": None, "~": None, "null": None, "true": True, "false": False}
_INTEGER = re.compile(r"[-+]?\d{1,18}")
_FLOAT = re.compile(r"[-+]?\d{1,18}\.\d{0,18}")
_BARE_REFERENCE = re.compile(r"""[\[{,:]\s*(\$\{[A-Za-z_][A-Za-z0-9_]*\}[^\s,\]}"']*)""")
_PLAIN_TAGS = {f"tag:yaml.org,2002:{kind}" for kind in ("str", "seq", "map")}


class Lines(NamedTuple):
    """The lines of a key and its value, from 1."""

    key: int
    value: int
    text: int | None = None
    """The first line of the text of a literal block (``|``)."""


@dataclass
class Document:
    """A parsed file. ``data`` consists of dict, tuple, str, int, float, bool and None."""

    file: str
    data: object = None
    text: str = ""
    """The whole text."""
    lines: dict[Place, Lines] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def problem(self, place: Place, message: str, suggestion: str | None = None) -> Problem:
        """A problem with the value at a place; without a value, with the nearest enclosing part."""
        return Problem(self.file, self.line(place), written(place), message, suggestion)

    def problem_with_key(self, place: Place, message: str, suggestion: str | None = None) -> Problem:
        """A problem with the name of a field."""
        lines = self.lines.get(place)
        return Problem(self.file, lines and lines.key, written(place), message, suggestion)

    def line(self, place: Place) -> int:
        """The line of a value; without a value, of the name of the enclosing section."""
        nearest = place
        while nearest and nearest not in self.lines:
            nearest = nearest[:-1]
        lines = self.lines.get(nearest, Lines(1, 1))
        is_plain = nearest == place and not isinstance(self.value(place), dict | tuple)
        return lines.value if is_plain else lines.key

    def value(self, place: Place) -> object:
        """The value at a place; None without a value."""
        value = self.data
        for step in place:
            if isinstance(value, dict):
                value = value.get(step)
            elif isinstance(value, tuple) and isinstance(step, int) and step < len(value):
                value = value[step]
            else:
                return None
        return value


def parse(path: Path, example: str = "version: 1") -> Document:
    """Read and parse a file. Parsing continues after a problem, so that all problems are reported together.

    `example` is a field of such a file.
    Raises ConfigError if nothing can be parsed: no such file, not UTF-8, not YAML, or beyond the bounds.
    """
    file = str(path)
    try:
        text = _read(path)
    except OSError as error:
        raise ConfigError([Problem(file, None, "", f"cannot be read: {error.strerror}")]) from None
    except UnicodeDecodeError:
        raise ConfigError([Problem(file, None, "", "is not UTF-8 text")]) from None
    except _TooMuchError as error:
        raise ConfigError([Problem(file, error.line, "", str(error))]) from None
    return parse_text(text, file, example)


def parse_text(text: str, file: str, example: str = "version: 1") -> Document:
    """Like `parse`, for a text. `file` is its name in problems."""
    try:
        check_depth(text)
        root = yaml.compose(text, Loader=yaml.CBaseLoader)
    except yaml.reader.ReaderError:
        raise ConfigError([Problem(file, None, "", "holds a control character, which YAML refuses")]) from None
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else None
        message = f"is not valid YAML: {error.problem}{_remedy(text, error)}"
        raise ConfigError([Problem(file, line, "", message)]) from None
    except _TooMuchError as error:
        raise ConfigError([Problem(file, error.line, "", str(error))]) from None
    return _Builder(file, text).document(root, example)


def _remedy(text: str, error: yaml.MarkedYAMLError) -> str:
    """A hint for an unquoted reference, which opens a mapping inside a list or mapping in brackets."""
    if error.problem_mark is None:
        return ""
    first = min(error.context_mark.line if error.context_mark else error.problem_mark.line, error.problem_mark.line)
    written = "\n".join(text.splitlines()[first : error.problem_mark.line + 1])
    reference = _BARE_REFERENCE.search(written)
    return f'. Inside brackets a reference needs quotes: "{reference[1]}"' if reference else ""


class _TooMuchError(ValueError):
    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line


def _read(path: Path) -> str:
    with path.open("rb") as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise _TooMuchError(f"is larger than {MAX_BYTES // 1024**2} MiB")
    return content.decode("utf-8-sig")


def check_depth(text: str) -> None:
    """Limit the depth before composing, as libyaml's composer recurses in C without a limit."""
    depth = 0
    for event in yaml.parse(text, Loader=yaml.CBaseLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                line = event.start_mark.line + 1 if event.start_mark else None
                raise _TooMuchError(f"nests deeper than {MAX_DEPTH} levels", line)
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


class _Builder:
    """Node tree → Document."""

    def __init__(self, file: str, text: str) -> None:
        self._doc = Document(file, text=text)
        self._nodes = 0

    def document(self, root: yaml.Node | None, example: str) -> Document:
        doc = self._doc
        if root is None:
            raise ConfigError([Problem(doc.file, None, "", f"is empty: start with fields such as `{example}`")])
        if not isinstance(root, yaml.MappingNode):
            raise ConfigError([Problem(doc.file, _line(root), "", f"expected fields such as `{example}`")])
        try:
            doc.data = self._build(root, (), _line(root))
        except _TooMuchError as error:
            raise ConfigError([Problem(doc.file, error.line, "", str(error))]) from None
        return doc

    def _build(self, node: yaml.Node, place: Place, key_line: int) -> object:
        self._nodes += 1
        if self._nodes > MAX_NODES or len(place) > MAX_DEPTH:
            raise _TooMuchError("the aliases expand to too much data: alias smaller values", key_line)
        is_literal = isinstance(node, yaml.ScalarNode) and node.style == "|"
        self._doc.lines[place] = Lines(key_line, _line(node), _line(node) + 1 if is_literal else None)
        if node.tag not in _PLAIN_TAGS:
            self._refuse(node, place, "YAML tags (!name) are not read: write the plain value")
            return None
        if isinstance(node, yaml.MappingNode):
            fields = self._fields(node, place).items()
            return {name: self._build(value, (*place, name), line) for name, (line, value) in fields}
        if isinstance(node, yaml.SequenceNode):
            return tuple(self._build(item, (*place, i), _line(item)) for i, item in enumerate(node.value))
        return _scalar(node)

    def _fields(self, node: yaml.MappingNode, place: Place) -> dict[str, tuple[int, yaml.Node]]:
        """The fields of a mapping: name → line and value."""
        fields: dict[str, tuple[int, yaml.Node]] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag not in _PLAIN_TAGS:
                self._refuse(key, place, "a field's name is plain text")
            elif key.value == "<<":
                self._refuse(key, place, "merge keys (<<) are not read: alias a whole value, or write it out")
            elif key.value in fields:
                first, _ = fields[key.value]
                self._refuse(key, (*place, key.value), f"is given twice, first on line {first}: keep one")
            else:
                fields[key.value] = (_line(key), value)
        return fields

    def _refuse(self, node: yaml.Node, place: Place, message: str) -> None:
        self._doc.problems.append(Problem(self._doc.file, _line(node), written(place), message))


def _line(node: yaml.Node) -> int:
    line: int = node.start_mark.line
    return line + 1


def _scalar(node: yaml.Node) -> object:
    text: str = node.value
    if isinstance(node, yaml.ScalarNode) and node.style:  # quoted, or a block
        return text
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else text


T = TypeVar("T")


@dataclass(frozen=True)
class Node:
    """The value at a place; None for ``null`` and without a value."""

    value: object
    place: Place = ()

    def __getitem__(self, name: str) -> Node:
        value = self.value.get(name) if isinstance(self.value, dict) else None
        return Node(value, (*self.place, name))

    def __contains__(self, name: str) -> bool:
        """Whether a field has a value other than ``null``."""
        return self[name].value is not None

    def __iter__(self) -> Iterator[Node]:
        """The entries of a list; none for any other value."""
        items = self.value if isinstance(self.value, tuple) else ()
        return (Node(item, (*self.place, i)) for i, item in enumerate(items))

    def read(self, kind: type[T]) -> T | None:
        """The value that the schema parses from this field, or the field's default if the file has none.

        None for an invalid value, a value of another type and a field that the schema does not have.
        """
        field = field_at(self.place)
        if field is None:
            return None
        if self.value is None:
            value = field.default
        else:
            try:
                value = field.parser.validate_python(self.value, strict=True)
            except ValidationError:
                return None
        return value if isinstance(value, kind) else None

    def fields(self) -> Iterator[tuple[str, Node]]:
        """The fields of a section; none for any other value."""
        fields = self.value if isinstance(self.value, dict) else {}
        return ((name, Node(value, (*self.place, name))) for name, value in fields.items())

    @property
    def text(self) -> str | None:
        """The value if it is text, else None."""
        return self.value if isinstance(self.value, str) else None

    def texts(self) -> list[str]:
        """The texts of a list."""
        return [item.text for item in self if item.text is not None]


def names(entries: Node) -> list[str]:
    """The ``name`` of each entry that has one."""
    return [name for entry in entries if (name := entry["name"].text) is not None]
