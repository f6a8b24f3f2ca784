"""The ``embeddings`` of a model: how texts become tensors for it, and its tensors become one vector a text."""

from typing import Annotated, Literal

from pydantic import Field

from config.schema.section import Section
from config.schema.text import Shape

TensorName = Annotated[str, Shape(r"[^\x00-\x1f\x7f]{1,256}", "a tensor's name")]
Tokenizer = Annotated[
    str,
    Shape(
        r"hf:[\w.-]+/[\w.-]+|(?!hf:)\S.{0,1023}",
        "a tokenizer.json or its folder, or hf:ORG/NAME",
    ),
]


class EmbeddingInputs(Section):
    """The model's inputs by name. Those that it does not have are left out."""

    ids: TensorName = "input_ids"
    """The tokens' numbers."""
    mask: TensorName = "attention_mask"
    """1 for a token, 0 for what only fills a row."""
    types: TensorName = "token_type_ids"
    """Zeros: a text has one part."""


class EmbeddingsConfig(Section):
    """Lets a model of tensors answer ``/v1/embeddings``. Needs the extra ``embeddings``."""

    tokenizer: Tokenizer
    """A ``tokenizer.json`` or the folder that holds it, relative to the working directory, or ``hf:ORG/NAME``."""
    inputs: EmbeddingInputs = EmbeddingInputs()
    """Which tensors the model is given."""
    output: TensorName | None = None
    """Which of its outputs counts; its first one when absent."""
    pooling: Literal["mean", "cls", "last"] = "mean"
    """Of an output with a vector a token: the mean of them, the first, or the last. Of one with a vector a text there
    is nothing to pool."""
    normalize: bool = True
    """Whether vectors are made of length 1."""
    max_tokens: int = Field(512, ge=1, le=1_000_000)
    """Longest text in tokens, special ones included."""
    too_long: Literal["refuse", "cut"] = "refuse"
    """A longer text is refused with 400, or cut."""
    batch: int = Field(32, ge=1, le=4096)
    """Texts in one request to the model, those of like length together."""
