"""The ``compare`` of shadow traffic: when two answers to one request agree."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from config.schema.section import Section
from config.schema.text import Name, Shape
from config.schema.units import Percent

JsonPath = Annotated[
    str,
    Shape(r"\$(\.[A-Za-z_][A-Za-z0-9_-]*|\[\*\]|\[\d{1,6}\])+", "a path such as $.id or $.items[*].created"),
]


def _some(share: float) -> float:
    if not 0 < share <= 1:
        raise ValueError("a similarity is over 0% and at most 100%")
    return share


class TextTestConfig(Section):
    """One test of two texts. ``exact`` and ``normalized`` alone are short for ``{same: exact}``."""

    same: Literal["exact", "normalized"] | None = None
    """``exact``: the texts are equal. ``normalized``: they are equal but for case, white space and the form of Unicode.
    """
    edit: Annotated[Percent, AfterValidator(_some)] | None = None
    """Least similarity: 100% less the edits (insertions, deletions, substitutions) of signs as a share of the longer
    text. Edits of words for texts of more than 4,096 signs."""
    embedding: Name | None = None
    """Model of this file that embeds both texts. They agree if the cosine of their vectors is ``least`` at least."""
    least: float = Field(0.9, ge=-1, le=1)
    """Least cosine."""
    judge: Name | None = None
    """Model of this file that compares both texts, in both orders, without their origins. They agree unless it prefers
    the primary's in both orders."""

    @model_validator(mode="before")
    @classmethod
    def _short(cls, data: object) -> object:
        return {"same": data} if isinstance(data, str) else data

    @model_validator(mode="after")
    def _one(self) -> Self:
        if sum(test is not None for test in (self.same, self.edit, self.embedding, self.judge)) != 1:
            raise ValueError("is one test: give same, edit, embedding or judge")
        return self

    @property
    def model(self) -> Name | None:
        """The model that decides; None for a test of the texts alone."""
        return self.embedding or self.judge

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        reference = handler(schema)
        return {"anyOf": [{"enum": ["exact", "normalized"]}, reference]}


class JsonComparisonConfig(Section):
    """The comparison of JSON bodies, field by field."""

    ignore: tuple[JsonPath, ...] = ()
    """Paths of values that do not count. ``[*]`` stands for each item of a list or an object."""
    rtol: float = Field(0.0, ge=0, le=1)
    """Relative tolerance of numbers."""
    atol: float = Field(0.0, ge=0)
    """Absolute tolerance of numbers."""


class TensorComparisonConfig(Section):
    """The comparison of output tensors. Datatypes and shapes are equal. Floats agree if ``|a - b| <= atol + rtol |a|``,
    where ``a`` is the primary's value, and NaN agrees with NaN. Other datatypes are equal."""

    rtol: float = Field(0.001, ge=0, le=1)
    """Relative tolerance."""
    atol: float = Field(0.00001, ge=0)
    """Absolute tolerance."""
    top_k: int | None = Field(None, ge=1, le=1000)
    """Instead of the values of floats: the positions of so many largest values of each row, in their order, are equal.
    """
    ignore: tuple[str, ...] = ()
    """Names of outputs that do not count."""


class CompareConfig(Section):
    """When two answers agree. The statuses always count: 2xx, 4xx or 5xx."""

    text: tuple[TextTestConfig, ...] = Field((TextTestConfig(same="normalized"),), min_length=1)
    """Tests of generated texts, in their order. Two texts agree when a test accepts them. A model only decides texts
    that no test of the texts alone accepts. Streams are compared by their whole text."""
    tools: bool = True
    """Whether the names and the arguments of tool calls must be equal."""
    json_: JsonComparisonConfig = Field(JsonComparisonConfig(), alias="json")
    """JSON of apps."""
    tensors: TensorComparisonConfig = TensorComparisonConfig()
    """Tensors and embeddings."""
    exact: bool = False
    """Compare the bytes of the bodies, and nothing else."""
