"""The sections of guards, one for each kind."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from config.schema.identity import Role
from config.schema.section import Conflict, Section
from config.schema.text import LocalFile, ModelName, Name, Shape

MOST_WORDS = 100_000
"""Words of one guard."""
Side = Literal["prompt", "answer"]
Word = Annotated[str, Field(min_length=1, max_length=256)]
Pattern = Annotated[str, Field(min_length=1, max_length=2048)]
Replacement = Annotated[str, Field(min_length=1, max_length=16_384)]
Host = Annotated[
    str, Shape(r"(\*\.)?[^\s/:@?#*]{1,253}", "a host such as example.com, without a scheme, a port or a path")
]


class ExemptConfig(Section):
    """Clients to which a guard does not apply."""

    roles: tuple[Role, ...] = ()
    """Roles of the client."""
    keys: tuple[Name, ...] = ()
    """Ids of keys."""


class NamedGuardConfig(Section):
    """What every guard has."""

    name: Name
    """Name of the guard, for ``guards`` of tenants, models and routes, and in logs and metrics."""
    action: Literal["block", "mask", "warn", "replace", "route"] = "block"
    """``block``: refuse the request, or end the answer with the error ``content_filter``. ``mask``: write ``[…]`` in
    the place of the text. ``warn``: change nothing, and name the guard in the header ``x-headrace-guards``.
    ``replace``: the answer is ``text``. ``route``: the model ``to`` answers."""
    text: Replacement | None = None
    """With ``replace``: the answer, with the status 200 and the finish reason ``content_filter``."""
    to: ModelName | None = None
    """With ``route``: the model that answers, by its own routes. The client needs no right to use it."""
    mode: Literal["enforce", "monitor"] = "enforce"
    """``monitor`` changes nothing, and only counts what the guard would have done."""
    on: tuple[Side, ...] = Field(("prompt", "answer"), min_length=1)
    """``prompt``: texts of the request, with the results of tools. ``answer``: texts of the answer, with thoughts and
    the arguments of tools."""
    exempt: ExemptConfig = ExemptConfig()
    """Clients to which the guard does not apply."""

    @property
    def acts(self) -> bool:
        """Whether the guard changes or refuses something."""
        return self.mode == "enforce" and self.action != "warn"

    @property
    def restores(self) -> bool:
        """Whether answers receive values again that the guard has masked in the prompt."""
        return False

    def conflicts(self) -> Iterator[Conflict]:
        for action, field in (("replace", "text"), ("route", "to")):
            if self.action == action and not self.has(field):
                yield Conflict(("action",), f"`{action}` needs `{field}`", concerns_value=True)
            elif self.action != action:
                yield from self.inert(f"belongs to the action `{action}`", field)
        if self.action == "route" and "answer" in self.on:
            yield Conflict(
                ("action",), "only a prompt can be sent elsewhere: write `on: [prompt]`", concerns_value=True
            )


class WordsGuardConfig(NamedGuardConfig):
    """A guard against words. Case, full width and characters that nobody sees make no difference."""

    kind: Literal["words"]
    """Compares words."""
    words: tuple[Word, ...] = Field((), max_length=MOST_WORDS)
    """Words or phrases."""
    file: LocalFile | None = None
    """File with one word or phrase on each line, relative to this file's folder. Lines that begin with # are comments.
    """
    match: Literal["word", "part"] = "word"
    """``word``: no letter and no digit stands beside it. ``part``: also inside of other words."""
    lookalikes: bool = False
    """Whether letters of Cyrillic and Greek count as the Latin letters that they look like."""

    def conflicts(self) -> Iterator[Conflict]:
        yield from super().conflicts()
        if not self.words and self.file is None:
            yield Conflict(("kind",), "finds nothing: give `words` or `file`", concerns_value=True)


class PatternGuardConfig(NamedGuardConfig):
    """A guard against texts that match a regular expression."""

    kind: Literal["pattern"]
    """Compares regular expressions."""
    patterns: tuple[Pattern, ...] = Field(min_length=1, max_length=1000)
    """Regular expressions of RE2, whose longest match has at most 4,096 characters: ``{1,64}`` instead of ``+``."""


class SecretsGuardConfig(NamedGuardConfig):
    """A guard against keys and tokens of well-known issuers, tokens of JWT, and private keys."""

    kind: Literal["secrets"]
    """Compares the shapes of keys and tokens."""


class UrlsGuardConfig(NamedGuardConfig):
    """A guard against addresses. A host covers its subdomains."""

    kind: Literal["urls"]
    """Compares the hosts of addresses."""
    allow: tuple[Host, ...] = Field((), max_length=10_000)
    """Hosts that are allowed; all others are forbidden then."""
    deny: tuple[Host, ...] = Field((), max_length=10_000)
    """Hosts that are forbidden, with a scheme or without one."""

    def conflicts(self) -> Iterator[Conflict]:
        yield from super().conflicts()
        if not self.allow and not self.deny:
            yield Conflict(("kind",), "finds nothing: give `allow` or `deny`", concerns_value=True)
