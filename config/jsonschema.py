"""The file's JSON Schema (draft 2020-12), for completion, hints and errors in editors."""

from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core.core_schema import ModelSchema

from config.descriptions import descriptions
from config.schema.config import Config


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
