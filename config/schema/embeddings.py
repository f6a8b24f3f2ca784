"""The ``embeddings`` of a model: the conversion of texts to tensors, and of tensors to one vector for each text."""

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
    """Names of the model's inputs. Inputs that the model does not have are left out."""

    ids: TensorName = "input_ids"
    """Token ids."""
    mask: TensorName = "attention_mask"
    """1 for a token, 0 for padding."""
    types: TensorName = "token_type_ids"
    """Token type ids, all 0."""


class EmbeddingsConfig(Section):
    """Lets a tensor model answer ``/v1/embeddings``. Needs the extra ``embeddings``."""

    tokenizer: Tokenizer
    """A ``tokenizer.json`` or its folder, relative to the working directory, or ``hf:ORG/NAME``."""
    inputs: EmbeddingInputs = EmbeddingInputs()
    """Names of the model's inputs."""
    output: TensorName | None = None
    """Output that holds the vectors; the first one when absent."""
    pooling: Literal["mean", "cls", "last"] = "mean"
    """How an output with one vector for each token becomes one vector for each text: their mean, the first, or the
    last. An output with one vector for each text is used as it is."""
    normalize: bool = True
    """Whether vectors are scaled to length 1."""
    max_tokens: int = Field(512, ge=1, le=1_000_000)
    """Longest text in tokens, special tokens included."""
    too_long: Literal["refuse", "cut"] = "refuse"
    """``refuse`` answers a longer text with 400, ``cut`` truncates it."""
    batch: int = Field(32, ge=1, le=4096)
    """Texts in one request to the model. Texts of similar length are grouped."""
