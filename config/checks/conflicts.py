"""Fields that conflict with others of their own section. Each section has its rules beside its fields.

The rules are for files: other code may make a section with a field that has no effect.
"""

from collections.abc import Iterator
from typing import Any

from pydantic import TypeAdapter, ValidationError

from config.document import Document, Node
from config.place import Place, type_at
from config.problem import Problem
from config.schema.section import Section


def check(doc: Document, root: Node) -> Iterator[Problem]:
    """Report the conflicts of every section that is valid, also within a section that is not."""
    hint: Any = type_at(root.place)
    try:
        value: object = TypeAdapter(hint).validate_python(root.value, strict=True)
    except ValidationError:
        for _, field in root.fields():
            yield from check(doc, field)
        for entry in root:
            yield from check(doc, entry)
    else:
        yield from _within(doc, value, root.place)


def _within(doc: Document, value: object, place: Place) -> Iterator[Problem]:
    if isinstance(value, Section):
        for inside, message, concerns_value in value.conflicts():
            report = doc.problem if concerns_value else doc.problem_with_key
            yield report((*place, *inside), message)
        for name in value.model_fields_set:
            field = type(value).model_fields.get(name)
            yield from _within(doc, getattr(value, name), (*place, (field and field.alias) or name))
    elif isinstance(value, tuple):
        for index, entry in enumerate(value):
            yield from _within(doc, entry, (*place, index))
    elif isinstance(value, dict):
        for name, entry in value.items():
            yield from _within(doc, entry, (*place, name))
