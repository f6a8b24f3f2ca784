"""The node `template`."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field as Bounds
from pydantic import GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from config.schema.pipelines.leaf import LeafConfig
from config.schema.section import Section
from config.schema.text import Shape

TemplateText = Annotated[str, Shape(r"[\s\S]{1,65536}", "a template of at most 65536 characters")]


class TemplateMessageConfig(Section):
    """One message of a chat."""

    role: Literal["system", "user", "assistant"]
    """Role of the message."""
    content: TemplateText
    """Its text. A value never adds a message or changes a role."""


class TemplateConfig(LeafConfig):
    """A template in the language of Jinja, without functions and attributes. A text alone is short for ``{text: …}``.

    Its variables are the inputs of its step, or the fields of the request for a step without ``in``.
    """

    text: TemplateText | None = None
    """The text; the output is ``text``."""
    messages: tuple[TemplateMessageConfig, ...] = Bounds((), max_length=64)
    """The messages of a chat; the output is ``messages``, for the input ``messages`` of a model."""

    @model_validator(mode="before")
    @classmethod
    def _short(cls, data: object) -> object:
        return {"text": data} if isinstance(data, str) else data

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if (self.text is None) == (not self.messages):
            raise ValueError("a template has either `text` or `messages`")
        return self

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": [{"type": "string", "description": "The template of a text."}, handler(schema)]}
