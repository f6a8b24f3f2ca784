"""Models of text on a Triton: TensorRT-LLM's, vLLM's, or one's own with inputs of the same names."""

from typing import Literal

from pydantic import Field

from config.protocols.prompts import PromptProtocol
from config.schema.embeddings import TensorName

Word = Literal[
    "prompt", "max_tokens", "min_tokens", "temperature", "top_p", "top_k", "seed", "stop", "bad_words",
    "frequency_penalty", "presence_penalty", "repetition_penalty", "length_penalty", "stream", "options",
]  # fmt: skip


class TritonGenerateProtocol(PromptProtocol):
    """``/v2/models/NAME/generate`` and ``/generate_stream``."""

    resumes = True

    name: Literal["triton-generate"]
    """Triton's generate extension. Which inputs a model has is read from its configuration."""
    inputs: dict[Word, TensorName] = Field({})
    """Where a model has names of its own: the request's field, and what the input is called that holds it. ``options``
    is one that takes all but prompt and stream, as JSON."""
    output: TensorName = "text_output"
    """The output that holds the text."""
    max_tokens: int = Field(1024, ge=1)
    """How long an answer may be where its client does not say: these servers would stop after 16 or 32 tokens."""
    streams: Literal["pieces", "whole"] | None = None
    """Whether each response of a stream has what is new, or all of the text so far. When absent, the model's
    ``accumulate_tokens`` says; without it: what is new."""
