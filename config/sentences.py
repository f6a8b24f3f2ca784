"""Converts pydantic's errors to sentences that name the required change, each with its line."""

from collections.abc import Container, Iterator
from contextlib import suppress
from typing import get_args

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from config.document import Document
from config.place import Place, fields_at, section_at, type_at
from config.problem import Problem, closest
from config.schema.section import Section

_EXPECTED = {
    "bool_type": "expected true or false",
    "int_type": "expected a whole number",
    "float_type": "expected a number",
    "string_type": "expected text: put a number, true or false in quotes",
    "tuple_type": "expected a list",
    "dict_type": "expected fields",
    "model_type": "expected fields",
}
_BOUNDS = {
    "greater_than": "must be more than {gt:g}",
    "greater_than_equal": "must be at least {ge:g}",
    "less_than_equal": "must be at most {le:g}",
    "too_short": "needs {min_length} or more entries",
    "too_long": "takes {max_length} entries at most",
    "string_too_short": "must not be empty",
}


def problems(
    doc: Document, error: ValidationError, skip: Container[Place], root: type[Section] | None = None
) -> Iterator[Problem]:
    """One problem for each error of the schema, except at the places in ``skip``."""
    for details in error.errors(include_url=False, include_input=False):
        place = tuple(step for step in details["loc"] if not _is_pydantics(step))
        if place not in skip and not _already_reported(doc, place, details):
            yield _problem(doc, place, details, root)


def _is_pydantics(step: str | int) -> bool:
    """Whether a step of a place is pydantic's own, or names one form of a union, and so is not in the file."""
    return isinstance(step, str) and step.startswith("[") and step.endswith("]")


def _already_reported(doc: Document, place: Place, details: ErrorDetails) -> bool:
    """Whether a list only seems too short: pydantic counts valid entries, and the invalid ones have errors of their
    own."""
    entries = doc.value(place)
    return (
        details["type"] == "too_short" and isinstance(entries, tuple) and len(entries) >= details["ctx"]["min_length"]
    )


def _problem(doc: Document, place: Place, details: ErrorDetails, root: type[Section] | None) -> Problem:
    kind = details["type"]
    if kind == "extra_forbidden":
        return _unknown_field(doc, place, fields_at(details["loc"][:-1], root))
    if kind == "missing":
        return doc.problem(place, "is required")
    if kind == "literal_error":
        return _not_a_choice(doc, place, type_at(details["loc"], root))
    value = doc.value(place)
    shape = _shape(place, value, root) if kind in ("model_type", "dict_type") else ""
    return doc.problem(place, sentence(details) + shape + _got(value))


def _unknown_field(doc: Document, place: Place, fields: tuple[str, ...]) -> Problem:
    suggestion = closest(str(place[-1]), fields)
    hint = f": the fields here are {', '.join(fields)}" if fields and suggestion is None else ""
    return doc.problem_with_key(place, f"unknown field{hint}", suggestion)


def _shape(place: Place, value: object, root: type[Section] | None) -> str:
    """The fields of a section, with the value that the file has in place of the section in the field that accepts
    it."""
    section = section_at(place, root)
    if section is None:
        return ""
    names = ", ".join(fields_at(place, root))
    example = _example(section, value)
    return f" ({names}), such as `{place[-1]}: {example}`" if example else f" ({names})"


def _example(section: type[Section], value: object) -> str:
    """``{attempts: 3}`` for the section of a retry and the value 3; empty if no field accepts the value."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return ""
    for name, field in section.model_fields.items():
        for written in (value, f"{value}s"):
            with suppress(ValidationError):
                section.model_validate({field.alias or name: written}, strict=True)
                return f"{{{field.alias or name}: {written}}}"
    return ""


def sentence(details: ErrorDetails) -> str:
    """The expected value, for an error that is not about a field's name or a choice."""
    kind, context, otherwise = details["type"], details.get("ctx", {}), details["msg"]
    if kind == "value_error":
        return str(context["error"])
    if kind in _BOUNDS:
        return _BOUNDS[kind].format(**context)
    return _EXPECTED.get(kind, otherwise)


def _not_a_choice(doc: Document, place: Place, hint: object) -> Problem:
    choices = ["true" if choice is True else str(choice) for choice in get_args(hint)]
    value = doc.value(place)
    suggestion = closest(value, choices) if isinstance(value, str) else None
    return doc.problem(place, f"expected {' or '.join(choices)}{_got(value)}", suggestion)


def _got(value: object) -> str:
    """The rejected value, for numbers and booleans only: a text may be a misplaced secret."""
    if isinstance(value, bool):
        return f", got {str(value).lower()}"
    return f", got {value}" if isinstance(value, int | float) else ""
