"""Resolves references out of the file: environment variables, secret files, key and PEM files, Python files."""

import os
import re
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from config.document import Document
from config.place import Place, type_at
from config.problem import Problem
from config.schema.pipelines.call import CodeFile
from config.schema.text import ENV_NAME, Jwks, LocalFile, PemFile, Secret

MAX_FILE_BYTES = 1024**2

_INLINE = "is a secret, which is never written here: write ${NAME} (environment) or file:PATH, and change it now"
_REFERENCE = re.compile(rf"\$\{{({ENV_NAME})(:-([^}}]*))?\}}|\$\{{")


class _UnresolvedError(Exception):
    """A reference that cannot be resolved. The message is the reason."""


@dataclass
class Resolved:
    """The file's data with its references replaced. An unresolved reference is None and has a problem."""

    data: object = None
    problems: list[Problem] = field(default_factory=list)
    failed: set[Place] = field(default_factory=set)
    sources: set[Path] = field(default_factory=set)
    """Files whose content is part of the configuration, even if they do not exist."""
    variables: dict[str, str] = field(default_factory=dict)
    """The values from the environment, each with its ``${NAME}``. A secret's own value is in no message."""


Use = tuple[Place, str]
"""A text with ``${NAME}``, and its field: all items of a list are one field."""


def uses(value: object, place: Place = ()) -> Iterator[Use]:
    """Every text of a document's data that has ``${NAME}``."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from uses(inner, (*place, name))
    elif isinstance(value, tuple):
        for inner in value:
            yield from uses(inner, (*place, 0))
    elif isinstance(value, str) and "${" in value:
        yield place, value


def resolve(doc: Document, folder: Path, permitted: Container[Use] | None = None) -> Resolved:
    """Replace ``${NAME}`` and ``${NAME:-default}`` in every text, read secrets and Python files, find the PEM files.

    ``folder`` is the base of the relative paths of these files. Other paths are not changed. ``permitted`` has the only
    uses that are replaced, besides ``${NAME}`` as the whole of a secret, which no message shows; None permits all.
    """
    resolver = _Resolver(doc, folder, permitted)
    resolver.done.data = resolver.walk(doc.data, ())
    return resolver.done


class _Resolver:
    def __init__(self, doc: Document, folder: Path, permitted: Container[Use] | None) -> None:
        self.done = Resolved()
        self._doc = doc
        self._folder = folder
        self._permitted = permitted

    def walk(self, value: object, place: Place) -> object:
        hint = type_at(place)
        if isinstance(value, str) and (name := self._not_permitted(value, place, hint)):
            return self._attempt(partial(_refuse, name), place)
        if hint == Secret and value is not None:
            return self._attempt(partial(self._secret, value), place)
        if hint == CodeFile:
            return self._attempt(partial(self._code, value), place)
        if isinstance(value, dict):
            return {name: self.walk(inner, (*place, name)) for name, inner in value.items()}
        if isinstance(value, tuple):
            return tuple(self.walk(inner, (*place, i)) for i, inner in enumerate(value))
        if not isinstance(value, str):
            return value
        return self._attempt(partial(self._reader(hint), value), place)

    def _not_permitted(self, value: str, place: Place, hint: object) -> str | None:
        """The variable of a text that may not be replaced here; None if it may."""
        reference = _REFERENCE.search(value)
        if self._permitted is None or reference is None or (hint == Secret and reference[0] == value):
            return None
        field_ = tuple(0 if isinstance(step, int) else step for step in place)
        return None if (field_, value) in self._permitted else reference[1]

    def _reader(self, hint: object) -> Callable[[str], str]:
        if hint == PemFile:
            return self._pem
        if hint == Jwks:
            return self._jwks
        return self._local_file if hint == LocalFile else self._expand

    def _attempt(self, resolve: Callable[[], object], place: Place) -> object:
        try:
            return resolve()
        except _UnresolvedError as error:
            self.done.problems.append(self._doc.problem(place, str(error)))
            self.done.failed.add(place)
            return None

    def _secret(self, value: object) -> str:
        if not isinstance(value, str):
            raise _UnresolvedError(_INLINE)
        if value.startswith("file:"):
            secret = self._secret_file(self._folder / self._expand(value.removeprefix("file:")))
        elif (reference := _REFERENCE.fullmatch(value)) and reference[1] and reference[2] is None:
            secret = _variable(reference)
        else:
            raise _UnresolvedError(_INLINE)
        if not secret:
            raise _UnresolvedError("the secret is empty")
        if not secret.isprintable():
            raise _UnresolvedError("the secret holds a line break or control character: it is one line of text")
        return secret

    def _secret_file(self, path: Path) -> str:
        content = self._content(path)
        try:
            return content.decode().removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError:
            raise _UnresolvedError(f"{path} is not UTF-8 text") from None

    def _code(self, value: object) -> dict[str, str]:
        if not isinstance(value, str) or not value:
            raise _UnresolvedError("is not the path of a Python file")
        path = self._folder / self._expand(value)
        try:
            return {"path": str(path.absolute()), "text": self._content(path).decode("utf-8-sig")}
        except UnicodeDecodeError:
            raise _UnresolvedError(f"{path} is not UTF-8 text") from None

    def _pem(self, value: str) -> str:
        path = self._folder / self._expand(value)
        if b"-----BEGIN " not in self._content(path):
            raise _UnresolvedError(f"{path} is not a PEM file: it has no -----BEGIN line")
        return str(path)

    def _local_file(self, value: str) -> str:
        """The path of a file that the gateway reads at runtime, so its content is not part of the configuration."""
        return str(self._folder / self._expand(value))

    def _jwks(self, value: str) -> str:
        source = self._expand(value)
        if not source.startswith("file:"):
            return source
        path = self._folder / source.removeprefix("file:")
        if b'"keys"' not in self._content(path):
            raise _UnresolvedError(f'{path} is not a JWK set: it has no "keys"')
        return f"file:{path}"

    def _content(self, path: Path) -> bytes:
        self.done.sources.add(path)
        try:
            with path.open("rb") as file:
                content = file.read(MAX_FILE_BYTES + 1)
        except (OSError, ValueError) as error:  # ValueError: a NUL in the name
            reason = error.strerror if isinstance(error, OSError) else "not a file name"
            raise _UnresolvedError(f"{path} cannot be read: {reason}") from None
        if len(content) > MAX_FILE_BYTES:
            raise _UnresolvedError(f"{path} is larger than {MAX_FILE_BYTES // 1024**2} MiB")
        return content

    def _expand(self, text: str) -> str:
        for reference in _REFERENCE.finditer(text):
            if value := os.environ.get(reference[1] or "", ""):
                self.done.variables[value] = f"${{{reference[1]}}}"
        return _REFERENCE.sub(_variable, text)


def _variable(reference: re.Match[str]) -> str:
    name, default = reference[1], reference[3]
    if name is None:
        raise _UnresolvedError("write ${NAME} or ${NAME:-default}")
    value = os.environ.get(name, "")
    if value or default is not None:
        return value or default
    raise _UnresolvedError(f"the environment variable {name} is {'empty' if name in os.environ else 'not set'}")


def _refuse(name: str) -> None:
    raise _UnresolvedError(
        f"a draft may use the environment variable {name} only in a field for secrets, or where the file in force has "
        "the same text in this field: write the value, or change the file itself"
    )
