"""The section of guards of personal data."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from config.schema.guards.kinds import NamedGuardConfig, Pattern
from config.schema.section import Conflict, Section
from config.schema.text import Shape

Entity = Literal[
    "email", "card", "iban", "ip", "passport", "ssn", "nino", "steuerid", "nir", "nif", "codicefiscale", "bsn", "nifpt",
    "cpf", "sin", "abn", "tfn", "pesel", "phone",
]  # fmt: skip
ALL: tuple[Entity, ...] = (
    "email", "card", "iban", "ip", "passport", "ssn", "nino", "steuerid", "nir", "nif", "codicefiscale", "bsn", "nifpt",
    "cpf", "sin", "abn", "tfn", "pesel", "phone",
)  # fmt: skip
Kind = Annotated[str, Shape(r"[a-z]{2,20}", "two to twenty letters from a to z, such as employee")]


class OwnPersonalConfig(Section):
    """A kind of personal data of your own."""

    name: Kind
    """Name of the kind: ``employee`` has placeholders such as ``<EMPLOYEE_48291375>``."""
    pattern: Pattern
    """Regular expression of RE2, whose longest match has at most 4,096 characters."""


class PersonalGuardConfig(NamedGuardConfig):
    """A guard of personal data. The model receives placeholders, and the client its own values."""

    kind: Literal["personal"]
    """Finds personal data."""
    action: Literal["block", "mask", "warn"] = "mask"
    """``mask``: write a placeholder such as ``<EMAIL_48291375>`` into the prompt. ``block`` and ``warn`` are those of
    every guard."""
    on: tuple[Literal["prompt", "answer"], ...] = Field(("prompt",), min_length=1)
    """``prompt``: texts of the request. ``answer``: personal data that the model writes and the client has not sent."""
    entities: tuple[Entity, ...] = ALL
    """What is found."""
    patterns: tuple[OwnPersonalConfig, ...] = Field((), max_length=100)
    """Kinds of your own."""
    restore: bool = True
    """Whether ``mask`` writes placeholders that the answer's values replace. Without it, ``[…]`` stands in the prompt,
    and the value is lost."""

    @property
    def restores(self) -> bool:
        """Whether answers receive values again."""
        return self.restore and self.mode == "enforce" and self.action == "mask" and "prompt" in self.on

    def conflicts(self) -> Iterator[Conflict]:
        if not self.entities and not self.patterns:
            yield Conflict(("kind",), "finds nothing: give `entities` or `patterns`", concerns_value=True)
        names = [pattern.name for pattern in self.patterns]
        for index, name in enumerate(names):
            if name in (*ALL, "text", *names[:index]):
                yield Conflict(("patterns", index, "name"), f'the name "{name}" is in use', concerns_value=True)
        if self.restore and "restore" in self.model_fields_set and (self.action != "mask" or "prompt" not in self.on):
            yield Conflict(("restore",), "only prompts that are masked can be restored", concerns_value=True)
