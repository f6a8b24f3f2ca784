"""The base of every part of the file."""

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """Frozen, and closed: a field that nobody reads is an error and never a silent no-op.

    The text under a field is its description in the JSON Schema, which editors show.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)
