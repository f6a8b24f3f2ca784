"""Hugging Face's Text Generation Inference, with its own API."""

from typing import Literal

from config.protocols.prompts import PromptProtocol


class TgiProtocol(PromptProtocol):
    """Text Generation Inference, ``/generate`` and ``/generate_stream``."""

    resumes = True

    name: Literal["tgi"]
    """Selects this protocol. The pool's ``model`` is the LoRA adapter, if it is not the base model."""
