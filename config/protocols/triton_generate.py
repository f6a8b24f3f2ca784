"""Models of text on Triton: TensorRT-LLM, vLLM, or other models with inputs of the same names."""

from typing import Literal

from pydantic import Field

from config.protocols.prompts import PromptProtocol
from config.schema.embeddings import TensorName

Word = Literal[
    "prompt", "max_tokens", "min_tokens", "temperature", "top_p", "top_k", "seed", "stop", "bad_words",
    "frequency_penalty", "presence_penalty", "repetition_penalty", "length_penalty", "stream", "options",
]  # fmt: skip


class TritonGenerateProtocol(PromptProtocol):
    """Triton's generate extension, ``/v2/models/NAME/generate`` and ``/generate_stream``."""

    resumes = True

    name: Literal["triton-generate"]
    """Selects this protocol. The inputs of a model are read from its configuration."""
    inputs: dict[Word, TensorName] = Field({})
    """Maps fields of a request to the model's input names, where they differ. ``options`` is an input that receives
    everything except prompt and stream, as JSON."""
    output: TensorName = "text_output"
    """Output that holds the text."""
    max_tokens: int = Field(1024, ge=1)
    """Longest answer when the client sets no maximum. These servers would stop after 16 or 32 tokens."""
    streams: Literal["pieces", "whole"] | None = None
    """Whether each response of a stream holds the new text (``pieces``) or all text so far (``whole``). When absent: as
    the model's ``accumulate_tokens``, else ``pieces``."""
