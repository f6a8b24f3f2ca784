"""The base of every part of the file."""

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """The base of every part of the file: frozen, and closed to unknown fields.

    The docstring under a field is its description in the JSON Schema and in docs/configuration.md, by
    `config.jsonschema`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
