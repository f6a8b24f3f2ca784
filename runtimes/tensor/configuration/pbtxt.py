"""`config.pbtxt`: protobuf's text format, with the line of each part."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

from google.protobuf import text_format

from adapters.wire.protos import model_config
from config.document import Document, Lines
from config.place import Place
from config.problem import ConfigError, Problem, closest

MAX_BYTES = 1 << 20
_UNKNOWN = re.compile(r'Message type "(?:\w+\.)*(\w+)" has no field named "(\w+)"')
_NO_VALUE = re.compile(r'Enum type "(?:\w+\.)*(\w+)" has no value named (\w+)')
_TWICE = re.compile(r'should not have multiple "(\w+)" fields')


def read(path: Path) -> tuple[Any, Document]:
    """The `ModelConfig` message in a file, and the lines of its parts. Raises ConfigError."""
    file = str(path)
    try:
        with path.open("rb") as opened:
            content = opened.read(MAX_BYTES + 1)
        text = content.decode()
    except OSError as error:
        raise ConfigError([Problem(file, None, "", f"cannot be read: {error.strerror}")]) from None
    except UnicodeDecodeError:
        raise ConfigError([Problem(file, None, "", "is not UTF-8 text")]) from None
    if len(content) > MAX_BYTES:
        raise ConfigError([Problem(file, None, "", f"is larger than {MAX_BYTES // 1024} KiB")])
    return parse(text, file)


def parse(text: str, file: str) -> tuple[Any, Document]:
    """Like `read`, from text."""
    message = model_config.ModelConfig()
    try:
        text_format.Parse(text, message)
    except text_format.ParseError as error:
        raise ConfigError([_problem(error, file)]) from None
    except (ValueError, RecursionError, Warning) as error:
        raise ConfigError([Problem(file, None, "", f"is not protobuf text: {error}")]) from None
    doc = Document(file)
    _Scan(text, doc.lines).fields(message.DESCRIPTOR, (), "")
    return message, doc


def _problem(error: text_format.ParseError, file: str) -> Problem:
    reason = str(error).partition(" : ")[2] or str(error)
    if unknown := _UNKNOWN.search(reason):
        kind, name = unknown.groups()
        return Problem(file, error.GetLine(), name, "unknown field", closest(name, _fields(kind)))
    if no_value := _NO_VALUE.search(reason):
        kind, name = no_value.groups()
        return Problem(file, error.GetLine(), name, f"is no {kind}", closest(name, _values(kind)))
    if twice := _TWICE.search(reason):
        return Problem(file, error.GetLine(), twice[1], "is given twice: keep one")
    return Problem(file, error.GetLine(), "", reason.rpartition("': ")[2])


def _fields(kind: str) -> list[str]:
    return [
        name
        for message in _messages(model_config.ModelConfig.DESCRIPTOR.file)
        if message.name == kind
        for name in message.fields_by_name
    ]


def _values(kind: str) -> list[str]:
    file = model_config.ModelConfig.DESCRIPTOR.file
    enums = [*file.enum_types_by_name.values(), *(e for m in _messages(file) for e in m.enum_types)]
    return [name for enum in enums if enum.name == kind for name in enum.values_by_name]


def _messages(file: Any) -> list[Any]:
    messages = list(file.message_types_by_name.values())
    for message in messages:
        messages.extend(message.nested_types)
    return messages


class _Scan:
    """Records the line of each field of valid text.

    The place of a repeated field has its index, even if the field occurs once.
    """

    def __init__(self, text: str, lines: dict[Place, Lines]) -> None:
        self._tokens = text_format.Tokenizer(text.splitlines())
        self._lines = lines

    def fields(self, descriptor: Any, place: Place, end: str) -> None:
        """Up to `end`, or to the end of the text."""
        seen: Counter[str] = Counter()
        while not (self._tokens.AtEnd() if not end else self._take(end)):
            name = self._tokens.token
            line = self._line
            self._tokens.NextToken()
            self._take(":")
            field = descriptor.fields_by_name[name]
            for _ in self._entries():
                here = (*place, name, seen[name]) if field.is_repeated else (*place, name)
                seen[name] += 1
                self._lines.setdefault((*place, name), Lines(line, line))
                self._lines[here] = Lines(line if not field.is_repeated else self._line, self._line)
                self._value(field, here)
            self._take(";") or self._take(",")

    def _entries(self) -> Any:
        """One entry, or the entries of a list."""
        if not self._take("["):
            yield
            return
        while not self._take("]"):
            yield
            self._take(",")

    def _value(self, field: Any, place: Place) -> None:
        for opening, closing in (("{", "}"), ("<", ">")):
            if self._take(opening):
                self.fields(field.message_type, place, closing)
                return
        is_text = self._tokens.token[:1] in "'\""
        self._take("-")
        self._tokens.NextToken()
        while is_text and self._tokens.token[:1] in ("'", '"'):  # adjacent texts are one text
            self._tokens.NextToken()

    def _take(self, token: str) -> bool:
        return bool(self._tokens.TryConsume(token))

    @property
    def _line(self) -> int:
        return int(self._tokens.ParseError("").GetLine())
