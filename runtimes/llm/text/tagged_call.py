"""One call as Qwen 3-Coder, Qwen 3.5 and Nemotron 3 write it: a tag for the function and one for each argument.

    <function=name>
    <parameter=key>
    value
    </parameter>
    </function>

A value is a text as it is, or JSON where the function's schema has another type. The arguments become JSON, piece by
piece: a text as it comes, another value once it is complete.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from runtimes.llm.text.tokenizer import overlap

OPENS = "<function="
CLOSES = "</function>"
_FUNCTION = re.compile(r"<function=([^>\n]*)>")
_PARAMETER = re.compile(r"<parameter=([^>\n]*)>\n?")
_VALUE_ENDS = ("\n</parameter>", "</parameter>")
_WORDS = {"True": "true", "False": "false", "None": "null"}
"""Templates write Python's words into earlier calls, and models repeat them."""
_LONGEST_TAG = 512
_DEFINITION = re.compile(r"#/(\$defs|definitions)/([^/~%]+)")
_DEEPEST = 16
"""Names that lead to names, and choices within choices."""
_Named = dict[str, bool | None]
"""The answer for each definition, by its name in `$ref`."""


def is_text(schema: object, whole: Mapping[str, Any]) -> bool | None:
    """Whether a value of this part of the `whole` schema is a text; None if its type does not show that."""
    return _is_text(schema, whole, 0, {})


def _is_text(schema: object, whole: Mapping[str, Any], depth: int, answers: _Named) -> bool | None:
    """Each definition is followed once: choices among names that lead back to them would else take forever."""
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        return None
    if listed := [schema["const"]] if "const" in schema else _list(schema.get("enum")):
        return any(isinstance(value, str) for value in listed)
    if types := _list(schema.get("type")):
        return "string" in types
    if isinstance(named := schema.get("$ref"), str) and (place := _DEFINITION.fullmatch(named)) is not None:
        if named not in answers:
            answers[named] = None
            definitions = whole.get(place[1])
            own = definitions.get(place[2]) if isinstance(definitions, dict) else None
            answers[named] = _is_text(own, whole, depth + 1, answers)
        return answers[named]
    kinds = {_is_text(one, whole, depth + 1, answers) for key in ("anyOf", "oneOf") for one in _list(schema.get(key))}
    return True if True in kinds else None if None in kinds or not kinds else False


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


class TaggedCall:
    """Reads one call. `schemas` are those of the arguments of each function. Its `raw` text is buffered until the tag
    of one of these functions is complete."""

    def __init__(self, schemas: Mapping[str, Mapping[str, Any]]) -> None:
        self.name = ""
        self.raw = ""
        self.failed = False
        """Whether the text is no call."""
        self._schemas = schemas
        self._held = ""
        self._key: str | None = None
        self._text: bool | None = None
        self._count = 0

    def push(self, text: str) -> tuple[str, str | None]:
        """A piece of the arguments, and the text after the call, None while it has not ended."""
        if not self.name:
            self.raw += text
            head = _FUNCTION.match(self.raw)
            if head is None:
                self.failed = "\n" in self.raw or ">" in self.raw or len(self.raw) > _LONGEST_TAG
                return "", "" if self.failed else None
            if head[1] not in self._schemas:
                self.failed = True
                return "", ""
            self.name, text = head[1], self.raw[head.end() :]
        self._held += text
        written = ""
        while True:
            before = self._held, self._key
            piece, rest = self._between() if self._key is None else (self._value(), None)
            written += piece
            if rest is not None or before == (self._held, self._key):
                return written, rest

    def _between(self) -> tuple[str, str | None]:
        """Before a value, or the end."""
        self._held = self._held.lstrip()
        if self._held.startswith(CLOSES):
            rest, self._held = self._held[len(CLOSES) :], ""
            return "}" if self._count else "{}", rest
        head = _PARAMETER.match(self._held)
        if head is not None and (head[0].endswith("\n") or len(self._held) > head.end()):
            self._held, self._key = self._held[head.end() :], head[1]
            whole = self._schemas[self.name]
            properties = whole.get("properties")
            self._text = is_text(properties.get(self._key) if isinstance(properties, dict) else None, whole)
            start = ", " if self._count else "{"
            self._count += 1
            return f"{start}{json.dumps(self._key, ensure_ascii=False)}: " + '"' * bool(self._text), None
        if head is None and self._held and not self._may_be_tag():
            at = self._held.find("<", 1)  # neither an argument nor the end: nothing of a call
            self._held = self._held[at:] if at > 0 else ""
        return "", None

    def _may_be_tag(self) -> bool:
        tags = (CLOSES, "<parameter=")
        begun = self._held.startswith("<parameter=") and "\n" not in self._held and len(self._held) < _LONGEST_TAG
        return begun or any(tag.startswith(self._held) for tag in tags)

    def _value(self) -> str:
        ends = [(at, end) for end in _VALUE_ENDS if (at := self._held.find(end)) >= 0]
        if not ends:
            if not self._text:
                return ""
            sure = len(self._held) - max(overlap(self._held, end) for end in _VALUE_ENDS)
            piece, self._held = self._held[:sure], self._held[sure:]
            return _escaped(piece)
        at, end = min(ends)
        value, self._held, self._key = self._held[:at], self._held[at + len(end) :], None
        return _escaped(value) + '"' if self._text else _json(value, declared=self._text is not None)


def _escaped(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _json(text: str, *, declared: bool) -> str:
    """The value as JSON. Without a `declared` type only an object or a list is one."""
    bare = text.strip()
    bare = _WORDS.get(bare, bare) if declared else bare
    try:
        value = json.loads(bare, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return json.dumps(text, ensure_ascii=False)
    return bare if declared or isinstance(value, dict | list) else json.dumps(text, ensure_ascii=False)


def _refuse(word: str) -> float:
    """NaN and infinities, which Python's reader takes and JSON does not have."""
    raise ValueError(word)
