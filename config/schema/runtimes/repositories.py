"""The repositories of the tensor runtime: where its models are."""

from typing import Annotated, Any

from pydantic import AfterValidator, Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from config.stores import check_repository


class _OneOrMany:
    """A list, which is written without brackets if it has one member."""

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(_listed, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        many = handler(schema)
        return {"anyOf": [many["items"], many]}


def _listed(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


Repository = Annotated[str, Field(min_length=1, max_length=2048), AfterValidator(check_repository)]
Repositories = Annotated[tuple[Repository, ...], Field(min_length=1, max_length=64), _OneOrMany()]
