"""The section of guards of personal data."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from config.schema.guards.kinds import NamedGuardConfig, Pattern
from config.schema.section import Conflict, Section
from config.schema.text import ModelName, Shape
from config.schema.units import Duration

Entity = Literal[
    "email", "card", "iban", "ip", "passport", "ssn", "nino", "steuerid", "nir", "nif", "codicefiscale", "bsn", "nifpt",
    "cpf", "sin", "abn", "tfn", "pesel", "phone",
]  # fmt: skip
ALL: tuple[Entity, ...] = (
    "email", "card", "iban", "ip", "passport", "ssn", "nino", "steuerid", "nir", "nif", "codicefiscale", "bsn", "nifpt",
    "cpf", "sin", "abn", "tfn", "pesel", "phone",
)  # fmt: skip
RecognisedEntity = Annotated[
    str, Shape(r"[A-Z][A-Z_]{0,38}[A-Z]", "an entity of the server in capital letters, such as PERSON")
]
Kind = Annotated[str, Shape(r"[a-z]{2,20}", "two to twenty letters from a to z, such as employee")]


class OwnPersonalConfig(Section):
    """A kind of personal data of your own."""

    name: Kind
    """Name of the kind: ``employee`` has placeholders such as ``<EMPLOYEE_48291375>``."""
    pattern: Pattern
    """Regular expression of RE2, whose longest match has at most 4,096 characters."""


class RecogniserConfig(Section):
    """A server that finds names and places, with the contract of Presidio's analyzer: ``POST /analyze``."""

    model: ModelName
    """Model whose pool leads to the server, with ``protocol: http``. The client needs no right to use it."""
    entities: tuple[RecognisedEntity, ...] = Field(("PERSON", "LOCATION"), min_length=1, max_length=100)
    """Its entities that are masked. ``PERSON`` has placeholders such as ``<PERSON_48291375>``."""
    language: Annotated[str, Shape(r"[a-z]{2}", "two letters of ISO 639-1, such as `en`")] = "en"
    """Language of the texts. The server must have a model for it."""
    threshold: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Least score of an entity."""
    timeout: Annotated[Duration, Field(gt=0, le=60)] = 5.0
    """Longest time of all of its answers for one request. After 5 failures in a row, ``on_error`` decides for 30 s
    without a call."""
    on_error: Literal["block", "pass"] = "block"
    """What happens to a prompt without its answer: the request fails with ``guard_failed``, or only ``entities`` and
    ``patterns`` are masked."""


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
    recogniser: RecogniserConfig | None = None
    """Finds names and places in prompts. It needs a guard that restores what it masks, or ``mode: monitor``."""
    restore: bool = True
    """Whether ``mask`` writes placeholders that the answer's values replace. Without it, ``[…]`` stands in the prompt,
    and the value is lost."""

    @property
    def restores(self) -> bool:
        """Whether answers receive values again."""
        return self.restore and self.mode == "enforce" and self.action == "mask" and "prompt" in self.on

    def conflicts(self) -> Iterator[Conflict]:
        if not self.entities and not self.patterns and self.recogniser is None:
            message = "finds nothing: give `entities`, `patterns` or `recogniser`"
            yield Conflict(("kind",), message, concerns_value=True)
        if self.recogniser is not None and not (self.restore and self.action == "mask" and "prompt" in self.on):
            message = "needs `action: mask` of prompts, with `restore`: what it finds comes back in the answer"
            yield Conflict(("recogniser",), message)
        names = [pattern.name for pattern in self.patterns]
        for index, name in enumerate(names):
            if name in (*ALL, "text", *names[:index]):
                yield Conflict(("patterns", index, "name"), f'the name "{name}" is in use', concerns_value=True)
        if self.restore and "restore" in self.model_fields_set and (self.action != "mask" or "prompt" not in self.on):
            yield Conflict(("restore",), "only prompts that are masked can be restored", concerns_value=True)
