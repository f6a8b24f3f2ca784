"""OpenAI's `prediction`: text that the client expects in the answer. Speculation proposes it; no answer changes."""

from typing import Literal

import msgspec


class PredictedPart(msgspec.Struct, forbid_unknown_fields=True):
    type: Literal["text"]
    text: str


class Prediction(msgspec.Struct, forbid_unknown_fields=True):
    """A text, or several that are one after another."""

    type: Literal["content"]
    content: str | list[PredictedPart]

    @property
    def text(self) -> str:
        return self.content if isinstance(self.content, str) else "".join([part.text for part in self.content])
