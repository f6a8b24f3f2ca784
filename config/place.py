"""A place in the file: ``("pools", 1, "url")``, written ``pools[1].url``, and the schema at that place."""

from functools import cache
from types import UnionType
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin, get_type_hints

from pydantic import Tag, TypeAdapter

from config.schema.section import Section

Place = tuple[str | int, ...]


def written(place: Place) -> str:
    """Format a place: ``pools[1].url``."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place)
    return text.removeprefix(".")


def type_at(place: Place, root: type[Section] | None = None) -> object:
    """The type hint of a place, without its ``| None``; None if the schema has no such place.

    ``root`` is the section of the whole file, by default that of the gateway.
    """
    hint: object = _of_the_gateway() if root is None else root
    for step in place:
        hint = _not_none(_inside(hint, step))
    return hint


class FieldSchema(NamedTuple):
    """The schema of a field: the parser of its values, and its default."""

    parser: TypeAdapter[Any]
    default: object
    """None for a required field, too."""


def field_at(place: Place) -> FieldSchema | None:
    """The schema of the field at a place; None if the schema has no such field."""
    section = _form(type_at(place[:-1]), place[-1])
    if not isinstance(section, type) or not issubclass(section, Section):
        return None
    return _field(section, str(place[-1])) if place[-1] in _hints(section) else None


def fields_at(place: Place, root: type[Section] | None = None) -> tuple[str, ...]:
    """The fields of the section at a place; none if there is no section."""
    section = section_at(place, root)
    return () if section is None else tuple(field.alias or name for name, field in section.model_fields.items())


def section_at(place: Place, root: type[Section] | None = None) -> type[Section] | None:
    """The section at a place; None if there is no section."""
    hint = _form(type_at(place, root), "")
    return hint if isinstance(hint, type) and issubclass(hint, Section) else None


def _of_the_gateway() -> type[Section]:
    """The gateway's file. A runtime reads files of its own, and does not import all of that schema."""
    from config.schema.config import Config

    return Config


def _inside(hint: object, step: str | int) -> object:
    form = _form(hint, step)
    if isinstance(step, str) and step.startswith("[") and form is not hint:
        return form
    hint = form
    if isinstance(hint, type) and issubclass(hint, Section):
        return _hints(hint).get(str(step))
    if get_origin(hint) is tuple:
        return get_args(hint)[0]
    return get_args(hint)[1] if get_origin(hint) is dict else None


def _not_none(hint: object) -> object:
    if get_origin(hint) in (Union, UnionType):
        return next(option for option in get_args(hint) if option is not type(None))
    return hint


def _form(hint: object, step: str | int) -> object:
    """The form of a union that contains a step, or that a step such as [one] names."""
    if get_origin(hint) is not Annotated:
        return hint
    if get_origin(get_args(hint)[0]) not in (Union, UnionType):
        return get_args(hint)[0]
    forms = [get_args(form) if get_origin(form) is Annotated else (form,) for form in get_args(get_args(hint)[0])]
    for form, *notes in forms:
        if any(isinstance(note, Tag) and note.tag == step for note in notes) or _holds(form, step):
            return form
    return next(form for form, *_ in forms if get_origin(form) is None)


def _holds(form: object, step: str | int) -> bool:
    if isinstance(step, int):
        return get_origin(form) is tuple
    return isinstance(form, type) and issubclass(form, Section) and step in _hints(form)


@cache
def _field(section: type[Section], key: str) -> FieldSchema:
    field = next(field for name, field in section.model_fields.items() if key == (field.alias or name))
    default = None if field.is_required() else field.get_default(call_default_factory=True)
    hint: Any = _hints(section)[key]
    return FieldSchema(TypeAdapter(hint), default)


@cache
def _hints(section: type[Section]) -> dict[str, object]:
    hints = get_type_hints(section, include_extras=True)
    return {field.alias or name: hints[name] for name, field in section.model_fields.items()}
