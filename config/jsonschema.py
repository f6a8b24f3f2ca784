"""The file's JSON Schema (draft 2020-12), for completion, hints and errors in editors.

Its descriptions are the docstrings under the fields. The gateway itself never needs them, and parsing them is a tenth
of the CPU time of its start.
"""

import ast
import inspect
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import pairwise
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core.core_schema import ModelSchema

from config.schema.config import Config
from config.schema.section import Section


def descriptions(section: type[Section]) -> dict[str, str]:
    """The description of each field, by the field's name. A subclass inherits those of fields that it leaves alone."""
    texts: dict[str, str] = {}
    for base in reversed(section.__mro__):
        if issubclass(base, Section):
            texts |= _classes(base.__module__).get(base.__qualname__, {})
    return texts


@cache
def _classes(module: str) -> dict[str, dict[str, str]]:
    """The field docstrings of each class of a module, by the class's qualified name."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {name: dict(_docstrings(node.body)) for name, node in _named(tree.body, "")}


def _named(body: Iterable[ast.stmt], outer: str) -> Iterator[tuple[str, ast.ClassDef]]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield outer + node.name, node
            yield from _named(node.body, f"{outer}{node.name}.")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _named(node.body, f"{outer}{node.name}.<locals>.")


def _docstrings(body: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    for field, after in pairwise([*body, ast.Pass()]):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            yield field.target.id, _text(after)


def _text(statement: ast.stmt) -> str:
    """A string that stands alone; empty for another statement."""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return inspect.cleandoc(statement.value.value) if isinstance(statement.value.value, str) else ""
    return ""


class _Generator(GenerateJsonSchema):
    def field_title_should_be_set(self, schema: Any) -> bool:
        return False  # a title that repeats the field's name is noise in an editor

    def model_schema(self, schema: ModelSchema) -> JsonSchemaValue:
        made = super().model_schema(schema)
        texts = descriptions(schema["cls"])
        for name, field in schema["cls"].model_fields.items():
            if text := texts.get(name):
                made["properties"][field.alias or name].setdefault("description", text)
            if field.default and isinstance(field.default, tuple):  # Pydantic applies no serializer inside of a default
                written = TypeAdapter(field.rebuild_annotation()).dump_python(field.default, mode="json")
                made["properties"][field.alias or name]["default"] = written
        return made


def json_schema() -> dict[str, Any]:
    """The schema as a JSON object. Quantities are text with a unit, also in defaults."""
    # The serialised form is the one in files, where a default is 10s and not 10.0.
    schema = Config.model_json_schema(mode="serialization", schema_generator=_Generator)
    return {"$schema": _Generator.schema_dialect, **schema, "title": "Headrace configuration"}
