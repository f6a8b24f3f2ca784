"""Which requests are copied, of a shadow and before a rollout, and when two answers to one request agree."""

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic.json_schema import JsonSchemaValue

from config.schema.money import Spend
from config.schema.section import Conflict, Section, ShortSection
from config.schema.target import share_of_requests, small_alpha
from config.schema.text import Name, Shape
from config.schema.units import Percent, Rate, RateLimit

JsonPath = Annotated[
    str,
    Shape(r"\$(\.[A-Za-z_][A-Za-z0-9_-]*|\[\*\]|\[\d{1,6}\])+", "a path such as $.id or $.items[*].created"),
]


def _some(share: float) -> float:
    if not 0 < share <= 1:
        raise ValueError("a similarity is over 0% and at most 100%")
    return share


class TextTestConfig(ShortSection):
    """One test of two texts. ``exact`` and ``normalized`` alone are short for ``{same: exact}``."""

    short = "same"
    short_schema: ClassVar[JsonSchemaValue] = {"enum": ["exact", "normalized"]}

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

    @model_validator(mode="after")
    def _one(self) -> Self:
        if sum(test is not None for test in (self.same, self.edit, self.embedding, self.judge)) != 1:
            raise ValueError("is one test: give same, edit, embedding or judge")
        return self

    @property
    def model(self) -> Name | None:
        """The model that decides; None for a test of the texts alone."""
        return self.embedding or self.judge

    def conflicts(self) -> Iterator[Conflict]:
        if self.embedding is None:
            yield from self.inert("has no effect without `embedding`", "least")


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

    def conflicts(self) -> Iterator[Conflict]:
        if self.top_k is not None:
            yield from self.inert(
                "has no effect beside `top_k`, which compares positions and not values", "rtol", "atol"
            )


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

    def conflicts(self) -> Iterator[Conflict]:
        if self.exact:
            message = "has no effect beside `exact`, which compares the bytes"
            yield from self.inert(message, "text", "tools", "tensors")
            if self.has("json_"):
                yield Conflict(("json",), message)


class AtMostConfig(Section):
    """Bounds on the copies of a gateway. Its workers have equal parts."""

    concurrency: int = Field(4, ge=1, le=1000)
    """Copies at the same time."""
    requests: Rate = RateLimit(5, 1.0)
    """Copies per period."""
    spend: Spend | None = None
    """Cost of the copies in each hour, day or month. The price is that of the target if it is a model, else that of the
    route's model. The second answers of the primary and judges count too. Unlimited when absent."""


class CopiesConfig(Section):
    """Which requests are copied, and how their answers are compared."""

    share: Annotated[Percent, AfterValidator(share_of_requests)] = 0.01
    """Share of the requests that are copied."""
    noise: Percent = Field(0.0, ge=0, le=1)
    """Share of the copies that the primary answers once more. If it is above 0, only these count for the verdict, which
    is then about differences beyond those between two answers of the primary."""
    compare: CompareConfig = CompareConfig()
    """When two answers agree."""
    at_most: AtMostConfig = AtMostConfig()
    """Bounds on the copies. A copy beyond them is dropped."""
    alpha: Annotated[Percent, AfterValidator(small_alpha)] = 0.01
    """Probability that a shadow with equal answers ever gets the verdict ``differs``, and that one with too many
    differences ever gets ``agrees``."""
    agree: Annotated[Percent, AfterValidator(share_of_requests)] | None = None
    """Share of the answers that must agree, beyond the noise. The verdict is ``agrees`` when this is certain, and
    ``differs`` when fewer agree for certain. Without it the verdict is ``differs`` as soon as any difference is."""
    answers: int = Field(100, ge=1, le=1_000_000_000)
    """Fewest compared answers before the verdict ``agrees``."""
    samples: int = Field(0, ge=0, le=100)
    """Latest differing copies whose texts are stored in the state database, for ``headrace shadow show``. They are
    redacted as ``record`` is: keys and other secrets always, other kinds by ``record.redact``."""

    def conflicts(self) -> Iterator[Conflict]:
        if self.agree is None:
            yield from self.inert("has no effect without `agree`", "answers")


class ShadowFirstConfig(CopiesConfig):
    """Copies of the requests of ``from`` to ``to`` before the first step of a rollout."""

    agree: Annotated[Percent, AfterValidator(share_of_requests)] = 0.98
    """Share of the answers that must agree, beyond the noise. The first step begins when this is certain, and the
    rollout goes back when fewer agree for certain."""
    answers: int = Field(500, ge=1, le=1_000_000_000)
    """Fewest compared answers before the first step."""
