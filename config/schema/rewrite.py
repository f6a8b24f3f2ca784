"""The ``rewrite`` of a route: changes to the client's body for the upstream."""

from typing import Annotated, Any, Self

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator, WithJsonSchema, model_validator

from config.schema.section import Section
from config.schema.text import Shape

LENGTHS = frozenset({"max_tokens", "max_completion_tokens", "n_predict", "max_output_tokens"})
"""Names of the length that operations have."""
TWINS: tuple[frozenset[str], ...] = (
    LENGTHS | {"num_predict", "max_new_tokens"},
    frozenset({"repetition_penalty", "repeat_penalty"}),
    frozenset({"seed", "random_seed"}),
    frozenset({"enable_thinking", "think"}),
    frozenset({"guided_grammar", "grammar"}),
    frozenset({"guided_json", "json_schema"}),
)
"""Names that servers treat as one field: a rule for one name applies to all."""
MAX_TOKENS = 2**31 - 1
_OWN = frozenset({"model", "messages", "prompt", "stream", "stream_options"})
_MOST = dict.fromkeys(TWINS[0], MAX_TOKENS) | {"n": 128}
MAX_DEPTH = 16


def twins(name: str) -> frozenset[str]:
    """All names of the same field, including this one."""
    return next((names for names in TWINS if name in names), frozenset({name}))


def _not_our_own(name: str) -> str:
    if name in _OWN:
        raise ValueError(f"{name} decides the gateway's own routing: it cannot be rewritten")
    return name


def _json(value: object, depth: int = 0) -> object:
    """Check for plain JSON data. Raises ValueError for anything else."""
    if depth > MAX_DEPTH:
        raise ValueError("nests too deeply for a request's field")
    if isinstance(value, dict) and all(isinstance(name, str) for name in value):
        return {name: _json(inner, depth + 1) for name, inner in value.items()}
    if isinstance(value, tuple | list):
        return [_json(inner, depth + 1) for inner in value]
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise ValueError("expected a JSON value")


def _number(value: object) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("expected a number")
    return value


FieldName = Annotated[
    str, Shape(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}", "a field of the request's body"), AfterValidator(_not_our_own)
]
Number = Annotated[float, PlainValidator(_number), WithJsonSchema({"type": "number"})]
"""A number that remains an integer if written so: servers reject 100.0 for 100."""
JsonValue = Annotated[Any, BeforeValidator(_json)]


class RewriteConfig(Section):
    """Changes to the fields of a request's body, one level deep. A client cannot bypass them.

    A rule for ``max_tokens`` also applies to ``max_completion_tokens``, ``n_predict``, ``max_output_tokens``,
    ``num_predict`` and ``max_new_tokens``, which servers treat as one field. So do rules for ``repetition_penalty`` and
    ``repeat_penalty``, ``seed`` and ``random_seed``, ``enable_thinking`` and ``think``, ``guided_grammar`` and
    ``grammar``, ``guided_json`` and ``json_schema``. Rules also apply to fields within ``options``.
    """

    model: str | None = Field(None, min_length=1, max_length=256)
    """Name of the model for pools that set none."""
    strip: str | None = Field(None, min_length=1, max_length=128)
    """Beginning of the requested name that the servers' names do not have: with ``openai/``, a request for
    ``openai/gpt-4o`` is sent as ``gpt-4o``. For pools that set no name."""
    defaults: dict[FieldName, JsonValue] = Field({})
    """Values of fields that the client leaves out."""
    caps: dict[FieldName, Number] = Field({})
    """Largest value of a number; a larger one is replaced. A cap on ``max_tokens`` is also its default, and
    replaces a length below 0, which means no limit."""
    force: dict[FieldName, JsonValue] = Field({})
    """Values that replace those of the client."""
    drop: tuple[FieldName, ...] = ()
    """Fields that are removed."""

    @model_validator(mode="after")
    def _once(self) -> Self:
        seen: dict[frozenset[str], str] = {}
        for kind, names in (("force", self.force), ("drop", self.drop), ("caps", self.caps)):
            for name in names:
                if (before := seen.setdefault(twins(name), kind)) != kind or _repeats(name, names):
                    raise ValueError(f"{name} is given twice: {before} and {kind} set the same field")
        for name in self.defaults:
            if seen.get(twins(name), "caps") != "caps" or _repeats(name, self.defaults):
                raise ValueError(f"the default of {name} has no effect: another rule sets or removes it")
        return self

    @model_validator(mode="after")
    def _in_bounds(self) -> Self:
        for name, value in (*self.defaults.items(), *self.force.items(), *self.caps.items()):
            most = _MOST.get(name)
            if most is not None and not (type(value) is int and 1 <= value <= most):
                raise ValueError(f"{name} is a whole number from 1 to {most}")
        for name, value in self.defaults.items():
            cap = next((self.caps[twin] for twin in twins(name) if twin in self.caps), None)
            if cap is not None and not (isinstance(value, int | float) and value <= cap):
                raise ValueError(f"the default of {name} is above its cap")
        return self

    @model_validator(mode="after")
    def _something(self) -> Self:
        if self.model is not None and self.strip is not None:
            raise ValueError("strip has no effect: model replaces the whole name")
        if not (self.model or self.strip or self.defaults or self.caps or self.force or self.drop):
            raise ValueError("rewrites nothing: give model, strip, defaults, caps, force or drop")
        return self


def _repeats(name: str, names: dict[str, Any] | tuple[str, ...]) -> bool:
    """Whether a field occurs under two names, or twice under one name."""
    return sum(other in twins(name) for other in names) > 1
