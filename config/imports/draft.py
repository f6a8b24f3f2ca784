"""The configuration that an import writes: its parts, the points that need a person, and the YAML."""

import os
import re
from collections.abc import Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import wrap
from typing import Any, Final

import yaml
from pydantic import ValidationError

from config.loader import read
from config.problem import Problem
from config.schema.section import Section
from config.schema.text import ENV_NAME

_NOT_OF_A_NAME: Final = re.compile(r"[^A-Za-z0-9._:/-]+")
_REFERENCE: Final = re.compile(rf"\$\{{({ENV_NAME})\}}")
_WIDTH: Final = 110


class ImportFailed(Exception):
    """The document cannot become a configuration. The message is for the user."""


class _Dumper(yaml.SafeDumper):
    """Writes `on` without quotes, as here it is a text, and indents lists."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


_Dumper.yaml_implicit_resolvers = {
    sign: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith((":bool", ":timestamp", ":merge"))]
    for sign, resolvers in yaml.SafeDumper.yaml_implicit_resolvers.items()
}
_Dumper.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("true|false|True|False|TRUE|FALSE"), list("tTfF"))


@dataclass
class Blueprint:
    """A configuration in the making. `source` describes its origin in the head of the file."""

    source: str
    sections: dict[str, Any] = field(default_factory=dict)
    pools: dict[str, dict[str, Any]] = field(default_factory=dict)
    models: dict[str, dict[str, Any]] = field(default_factory=dict)
    tenants: dict[str, dict[str, Any]] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    """Environment variables that the file needs, each with an example of its value."""
    tasks: dict[str, str] = field(default_factory=dict)
    """Points that need a person, for the head of the file, each with the variable that it is about, if any."""
    notes: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    """Comments of a pool, model or tenant."""

    def task(self, text: str, variable: str = "") -> None:
        """Add a point that needs a person, once. One about a variable counts only if the file has the variable."""
        self.tasks.setdefault(text, variable)

    def note(self, kind: str, name: str, text: str) -> None:
        """Add a comment before an entry of `pools`, `models` or `tenants`, once."""
        notes = self.notes.setdefault((kind, name), [])
        if text not in notes:
            notes.append(text)

    def variable(self, name: str, example: str = "secret") -> str:
        """A reference to an environment variable. `example` is valid in its place."""
        name = re.sub(r"\W", "_", name, flags=re.ASCII)
        name = name if re.fullmatch(ENV_NAME, name) else f"_{name}"
        if self.variables.setdefault(name, example) == "secret":
            self.variables[name] = example
        return f"${{{name}}}"

    def resolved(self, value: Any) -> Any:
        """The value with the example of each variable."""
        if isinstance(value, str):
            return _REFERENCE.sub(lambda match: self.variables.get(match[1], match[0]), value)
        if isinstance(value, Mapping):
            return {name: self.resolved(inner) for name, inner in value.items()}
        return tuple(map(self.resolved, value)) if isinstance(value, list | tuple) else value

    def error(self, section: type[Section], value: Mapping[str, Any]) -> str | None:
        """Why a section would be invalid, in short; None for a valid one."""
        try:
            section.model_validate(self.resolved(value), strict=True)
        except ValidationError as error:
            return re.sub(r"^Value error, ", "", error.errors(include_url=False, include_input=False)[0]["msg"])
        return None

    def pool(self, wish: str, fields: Mapping[str, Any]) -> str:
        """Add a pool, and return its name: that of an equal pool, or a new one."""
        for name, other in self.pools.items():
            if {key: value for key, value in other.items() if key != "name"} == fields:
                return name
        name = free(as_name(wish), self.pools)
        self.pools[name] = {"name": name, **fields}
        return name

    def text(self) -> str:
        """The YAML. Raises `ImportFailed` unless it passes `headrace check`."""
        if not self.models or not self.pools:
            raise ImportFailed("no model of it can be imported")
        text = self._written()
        with _set(self.variables):
            reading = read(Path("imported.yaml"), text)
        if reading.config is None:
            shown = "\n".join(f"  {_without_file(problem)}" for problem in reading.problems)
            raise ImportFailed(f"its configuration would not pass the check:\n{shown}")
        return text

    def _written(self) -> str:
        sections = "".join(_dumped({name: section}) for name, section in self.sections.items())
        parts = [f"version: 1\n{sections}"]
        for kind, entries in (("pools", self.pools), ("models", self.models), ("tenants", self.tenants)):
            parts.append(f"{kind}:\n" + "".join(self._entry(kind, entry) for entry in entries.values()))
        body = "\n\n".join(part.rstrip("\n") for part in parts)
        variables = {match[1] for match in _REFERENCE.finditer(body)}
        lines = [f"# Imported from {printable(self.source)}."]
        if variables:
            lines += _comment(f"Needs in the environment: {', '.join(sorted(variables))}.", "# ", "#   ")
        tasks = [text for text, variable in self.tasks.items() if not variable or variable in variables]
        if tasks:
            lines += ["#", "# To do:"]
            lines += [line for text in tasks for line in _comment(text, "# - ", "#   ")]
        head = "\n".join(lines)
        return f"{head}\n\n{body}\n"

    def _entry(self, kind: str, entry: Mapping[str, Any]) -> str:
        notes = self.notes.get((kind, str(entry["name"])), [])
        lines = [line for text in notes for line in _comment(text, "  # ", "  # ")]
        lines += [f"  {line}" for line in _dumped([entry]).splitlines()]
        return "\n".join(lines) + "\n"


def as_name(wish: str) -> str:
    """The nearest valid name."""
    return _NOT_OF_A_NAME.sub("-", wish).strip("-._:/")[:120].strip("-._:/") or "pool"


def free(wish: str, used: Iterable[str], sign: str = "-") -> str:
    """A name that is not in use: the wish, or the wish with a number."""
    taken, name, number = set(used), wish, 2
    while name in taken:
        name, number = f"{wish}{sign}{number}", number + 1
    return name


def printable(text: str) -> str:
    """A foreign text for a comment, which a line break would end."""
    return "".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in text)


@contextmanager
def _set(variables: Mapping[str, str]) -> Any:
    """Set environment variables to examples for a while: the check needs valid values in place of secrets."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _without_file(problem: Problem) -> str:
    return f"{problem.path}: {problem.message}"


def _comment(text: str, first: str, rest: str) -> list[str]:
    return wrap(printable(text), _WIDTH, initial_indent=first, subsequent_indent=rest, break_long_words=False)


def _dumped(value: object) -> str:
    written: str = yaml.dump(
        value, Dumper=_Dumper, sort_keys=False, width=_WIDTH, allow_unicode=True, default_flow_style=None
    )
    return written
