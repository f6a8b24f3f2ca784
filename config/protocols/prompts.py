"""The options of servers that accept prompts and no chats."""

from typing import Annotated

from pydantic import Field

from config.protocols.base import ProtocolConfig
from config.schema.text import Shape

Template = Annotated[
    str,
    Shape(
        r"file:\S.{0,1023}|(?!file:)\S.{0,1023}", "chatml or another bundled name, file:PATH, or a tokenizer's folder"
    ),
]


class PromptProtocol(ProtocolConfig):
    """A chat becomes a prompt by a template. Needs the extra ``templates``."""

    chat_template: Template | None = None
    """Template that converts a chat to a prompt: a bundled one (``chatml``, ``gemma``, ``llama2``, ``llama3``,
    ``mistral`` or ``zephyr``), ``file:PATH``, or the folder of a model's tokenizer, relative to the working directory.
    Without it chats are refused and completions served. Needs the extra ``templates``."""
    bos_token: str = Field("", max_length=256)
    """Beginning-of-text token for the template. Empty, because servers add it to every prompt."""
