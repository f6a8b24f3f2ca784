"""Secrets of a text ↔ placeholders, which a browser may have.

A placeholder is a keyed digest of the secret and of the field to which the secret belongs. It is restored in such a
field only: the password of a URL with its own host, not with another one. A valid file has its secrets in the
environment and in other files. What remains are passwords in URLs, hashes of keys, and texts that an operator has
written where they do not belong; they are found also in a text that is not valid YAML.
"""

import hmac
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import yaml

from config.document import MAX_DEPTH, MAX_NODES, check_depth
from config.place import Place, type_at
from config.problem import Problem, hidden
from config.schema.text import Secret
from gateway.telemetry.redaction.secrets import secret_spans

_URL = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]{0,30}://[^\s/@:'\"]{0,256}):([^\s/@'\"]{1,512})@([^\s/'\"\],}]{0,256})")
_HASH = re.compile(r"(?<![0-9A-Za-z])[0-9a-fA-F]{64}(?![0-9A-Za-z])")
_FIELD = re.compile(
    r"(?m)(?:^|[{,])[ \t-]*[\"']?(?:pepper|key|allow_symmetric_secret)[\"']?[ \t]*:[ \t]*"
    r"(\"(?:[^\"\\\n]|\\.)*\"|'[^'\n]*'|[^\s,}\]#][^\n,}]*)"
)
"""Fields of secrets, for a text that is not YAML."""
_NAME = re.compile(r"[^=:]{0,200}[=:]\s*[\"']?|(?i:bearer|basic)\s+")
_REFERENCE = re.compile(r"\s*[\"']?(?:\$\{|file:)")
_FORM = re.compile(r"redacted-[0-9a-f]{24}(?![0-9a-f])")


class SecretSpan(NamedTuple):
    """One secret. `field` is the place to which it belongs, such as a host; another place is not its own."""

    start: int
    end: int
    field: str


def spans_of(text: str) -> list[SecretSpan]:
    """The secrets of a text in their order, without overlaps; each on one line."""
    candidates = (*_in_urls(text), *_in_fields(text), *_hashes(text), *_recognized(text))  # the most specific first
    spans: list[SecretSpan] = []
    for span in sorted(candidates, key=lambda span: span.start):
        for piece in _lines(text, span):
            if piece.start < piece.end and (not spans or piece.start >= spans[-1].end):
                spans.append(piece)
    return spans


def _in_urls(text: str) -> Iterator[SecretSpan]:
    for match in _URL.finditer(text):
        if not _REFERENCE.match(match[2]):
            yield SecretSpan(*match.span(2), f"{match[1]}@{match[3]}")


def _hashes(text: str) -> Iterator[SecretSpan]:
    for match in _HASH.finditer(text):
        yield SecretSpan(*match.span(), "hash")


def _recognized(text: str) -> Iterator[SecretSpan]:
    """Texts in the form of a credential."""
    for start, end in secret_spans(text):
        if "-----BEGIN" not in text[start:end] and (name := _NAME.match(text, start, end)):
            start = name.end()
        if not _REFERENCE.match(text, start):
            yield SecretSpan(start, end, "credential")


def _in_fields(text: str) -> Iterator[SecretSpan]:
    """Secrets that are written in the fields of references."""
    try:
        check_depth(text)
        root = yaml.compose(text, Loader=yaml.CBaseLoader)
    except (yaml.YAMLError, ValueError):
        for match in _FIELD.finditer(text):
            if not _REFERENCE.match(match[1]):
                yield SecretSpan(*match.span(1), "field")
        return
    hints: dict[Place, bool] = {}
    for node, place in _scalars(root):
        if place not in hints:
            hints[place] = type_at(place) == Secret
        if hints[place] and node.value and not _REFERENCE.match(node.value):
            yield SecretSpan(node.start_mark.index, node.end_mark.index, "field")


def _scalars(root: yaml.Node | None) -> Iterator[tuple[yaml.ScalarNode, Place]]:
    """Every scalar with its place, up to the bound of the parser.

    All items of a list have the index 0: they have one schema. So aliases do not multiply the work.
    """
    waiting: list[tuple[yaml.Node | None, Place]] = [(root, ())]
    visited: set[tuple[int, Place]] = set()
    while waiting and len(visited) < MAX_NODES:
        node, place = waiting.pop()
        if (id(node), place) in visited:
            continue
        visited.add((id(node), place))
        if isinstance(node, yaml.ScalarNode):
            yield node, place
        elif len(place) < MAX_DEPTH:
            waiting.extend(_children(node, place))


def _children(node: yaml.Node | None, place: Place) -> Iterable[tuple[yaml.Node, Place]]:
    if isinstance(node, yaml.SequenceNode):
        return [(item, (*place, 0)) for item in node.value]
    if isinstance(node, yaml.MappingNode):
        return [(value, (*place, key.value)) for key, value in node.value if isinstance(key, yaml.ScalarNode)]
    return ()


def _lines(text: str, span: SecretSpan) -> Iterator[SecretSpan]:
    """The parts of a secret on each of its lines, without the space around them: placeholders move no line."""
    at = span.start
    for line in text[span.start : span.end].splitlines(keepends=True):
        stripped = line.strip()
        start = at + (len(line) - len(line.lstrip()))
        yield SecretSpan(start, start + len(stripped), span.field)
        at += len(line)


class Placeholders:
    """The placeholders of the secrets of some texts."""

    def __init__(self, key: bytes, texts: Iterable[str] = ()) -> None:
        """`texts` have the secrets that `restore` writes."""
        self._key = key
        self._secrets: dict[str, str] = {}
        self._literal: set[str] = set()
        """Texts in the form of a placeholder that stand in the file itself."""
        for text in texts:
            self.redact(text)
            self._literal.update(_FORM.findall(text))

    def redact(self, text: str) -> str:
        """The text with a placeholder for each secret."""
        parts, at = [], 0
        for span in spans_of(text):
            secret = text[span.start : span.end]
            parts += [text[at : span.start], self._of(secret, span.field)]
            at = span.end
        return "".join((*parts, text[at:]))

    def restore(self, text: str, file: str) -> tuple[str, list[Problem]]:
        """The text with its secrets, and the placeholders that have none or stand in another field."""
        if _FORM.search(text) is None:
            return text, []
        unresolved = [
            match for match in _FORM.finditer(text) if match[0] not in self._secrets and match[0] not in self._literal
        ]
        problems = [
            _problem(file, text, match, "stands for no secret of the file: write the secret, or load the file again")
            for match in unresolved
        ]
        restored = _FORM.sub(lambda match: self._secrets.get(match[0], match[0]), text)
        moved = Counter(_FORM.findall(text)) - Counter(_FORM.findall(self.redact(restored)))
        problems += [
            _problem(file, text, match, "belongs to another field, URL or host: write the secret")
            for match in _FORM.finditer(text)
            if match[0] in self._secrets and moved[match[0]] > 0
        ]
        return restored, problems

    def hide(self, text: str) -> str:
        """A message without the secrets."""
        return hidden(text, {secret: placeholder for placeholder, secret in self._secrets.items()})

    def _of(self, secret: str, field: str) -> str:
        digest = hmac.digest(self._key, f"{field}\0{secret}".encode(errors="surrogatepass"), "sha256").hex()
        placeholder = f"redacted-{digest[:24]}"
        self._secrets[placeholder] = secret
        return placeholder


def _problem(file: str, text: str, match: re.Match[str], message: str) -> Problem:
    return Problem(file, text.count("\n", 0, match.start()) + 1, match[0], message)
