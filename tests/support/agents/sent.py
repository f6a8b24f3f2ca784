"""Captured requests as a test sends them again: whole or streamed, under a model's name."""

import base64
import re
from typing import Any, NamedTuple

from tests.support.agents.wires import MESSAGES

Object = dict[str, Any]
CONTENTS = "/v1beta/models"
_PLACE = re.compile(r"(?P<before>.*/models?/)(?P<model>[^/:]+(?::\d+)?)(?P<sign>[/:])(?P<verb>[\w-]+)(?P<query>\?.*)?")
_VERBS = {
    "generateContent": ("generateContent", "streamGenerateContent"),
    "streamGenerateContent": ("generateContent", "streamGenerateContent"),
    "rawPredict": ("rawPredict", "streamRawPredict"),
    "streamRawPredict": ("rawPredict", "streamRawPredict"),
    "invoke": ("invoke", "invoke-with-response-stream"),
    "invoke-with-response-stream": ("invoke", "invoke-with-response-stream"),
}
"""The verbs of the clouds' paths, whole and streamed, by either. Any other has one form."""
_WRAPPED = re.compile(r'"bytes":\s*"([^"]+)"')


class Sent(NamedTuple):
    """A captured request."""

    path: str
    headers: Object
    body: Object

    @classmethod
    def of(cls, written: Object) -> "Sent":
        """An entry of a file."""
        headers = {name: value for name, value in written["headers"].items() if name != "content-type"}
        return cls(written["path"], headers, written["body"])

    @property
    def model(self) -> str:
        """The model's name, which is in the body or, at the clouds' doors, in the path."""
        return str(self.body["model"] if "model" in self.body else self._place["model"])

    @property
    def is_count(self) -> bool:
        """Whether it counts tokens: it has no text as its answer."""
        return "model" not in self.body and self._place["verb"] == "countTokens"

    @property
    def protocol(self) -> str:
        """The protocol of the body, by the path that it has at its own servers."""
        path = self.path.partition("?")[0]
        if path.startswith(CONTENTS):
            return CONTENTS
        return MESSAGES if path.startswith(("/model/", "/v1/projects/")) else path

    @property
    def _place(self) -> re.Match[str]:
        place = _PLACE.fullmatch(self.path)
        assert place is not None, self.path
        return place

    def again(self, model: str | None = None, *, stream: bool) -> tuple[str, Object]:
        """Its path and body, for another model and in either form."""
        model = model or self.model
        if "model" in self.body:
            return self.path, {**self.body, "model": model, "stream": stream}
        place, body = self._place, self.body
        verb = _VERBS.get(place["verb"], (place["verb"],) * 2)[stream]
        if "stream" in body:
            body = {**body, "stream": stream}
        query = "?alt=sse" if verb == "streamGenerateContent" else ""
        return f"{place['before']}{model}{place['sign']}{verb}{query}", body


def readable(raw: bytes) -> str:
    """The text of an answer, with the texts that a binary stream of events has wrapped."""
    text = raw.decode(errors="replace")
    return text + "".join(base64.b64decode(each).decode() for each in _WRAPPED.findall(text))
