"""The node `call`."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from config.schema.pipelines.leaf import LeafConfig, Place
from config.schema.text import Name


class CallConfig(LeafConfig):
    """Python code in a process of the bundled tensor runtime. A name alone is short for ``{model: NAME}``."""

    model: Name
    """Model whose pools all have ``runtime: {kind: tensor}``: a ``model.py`` of its repository."""

    @model_validator(mode="before")
    @classmethod
    def _short(cls, data: object) -> object:
        return {"model": data} if isinstance(data, str) else data

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": [{"type": "string", "description": "A model's name."}, handler(schema)]}

    def placed_models(self) -> Iterator[tuple[Place, str]]:
        yield ("model",), self.model

    def needs_inputs(self) -> bool:
        return True
