"""The requests that servers received."""

from typing import Any, Literal
from zlib import crc32

from tests.simulation.fates import MOST_WORDS, Fate

COPY = "-shadow"
"""The end of the id of a copy, whose answer is as long as that of its request."""
End = Literal["running", "whole", "broken", "left", "killed"]


def words_of(request_id: str) -> int:
    """The length of the answer, on every server."""
    return crc32(request_id.removesuffix(COPY).encode()) % (MOST_WORDS + 1)


class Call:
    """One request that arrived, and its outcome."""

    __slots__ = ("began", "body", "end", "ended", "fate", "finished", "first", "id", "request_id", "total")

    def __init__(self, id_: str, request_id: str, body: dict[str, Any], fate: Fate, began: float) -> None:
        self.id = id_
        self.request_id = request_id
        self.body = body
        self.fate = fate
        self.began = began
        self.end: End = "running"
        self.ended = 0.0
        self.total = words_of(request_id)
        last = body["messages"][-1]
        self.first = len(last["content"].split()) if self.carries_on else 0
        """The first word to generate: the interrupted answer holds the earlier words."""
        self.finished = False
        """Whether the end of a whole answer was sent."""

    @property
    def carries_on(self) -> bool:
        """Whether the request continues an interrupted answer."""
        return bool(self.body.get("continue_final_message"))

    def word(self, index: int) -> str:
        """A word that names the request and the call: each word that a client reads can be traced."""
        return f"{self.request_id}/{self.id}/{index} "

    @property
    def is_copy(self) -> bool:
        """Whether it is the copy of a request."""
        return self.request_id.endswith(COPY)

    @property
    def text(self) -> str:
        return "".join(self.word(i) for i in range(self.first, self.total))
