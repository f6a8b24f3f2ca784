"""Hugging Face's Text Generation Inference, by its own API."""

from typing import Literal

from config.protocols.prompts import PromptProtocol


class TgiProtocol(PromptProtocol):
    """``/generate`` and ``/generate_stream``."""

    resumes = True

    name: Literal["tgi"]
    """Text Generation Inference. The pool's ``model`` is the LoRA adapter to answer with, where it is not the base."""
