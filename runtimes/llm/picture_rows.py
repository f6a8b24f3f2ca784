"""Rows of pictures, which take the place of the embeddings of a prompt's tokens."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class PictureRows:
    """The tiles of a prompt's pictures in their order. All have `length` rows."""

    length: int
    places: tuple[int, ...]
    """The position of each tile's first row."""
    digests: tuple[bytes, ...]
    """Equal for tiles of equal pixels only."""
    rows: "tuple[Tensor, ...]"
    """[length, hidden] of each tile."""

    @property
    def end(self) -> int:
        """The position after the last row."""
        return self.places[-1] + self.length

    def digest(self, start: int, end: int) -> bytes:
        """What the tiles add to the digest of the tokens at positions `start` … `end` - 1."""
        return b"".join([self.digests[tile] for tile in self._within(start, end)])

    def between(self, start: int, end: int) -> "Iterator[tuple[int, Tensor]]":
        """The rows at positions `start` … `end` - 1: runs of them, each with its distance from `start`."""
        for tile in self._within(start, end):
            place = self.places[tile]
            yield max(place - start, 0), self.rows[tile][max(start - place, 0) : end - place]

    def _within(self, start: int, end: int) -> range:
        first = bisect_right(self.places, start - self.length)
        return range(first, max(bisect_right(self.places, end - 1), first))


class PromptPart(Protocol):
    """The part of a prompt that a step computes: a chunk."""

    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def token_ids(self) -> Sequence[int]: ...
    @property
    def pictures(self) -> PictureRows | None: ...


def placed_rows(chunks: Sequence[PromptPart]) -> "list[tuple[int, Tensor]]":
    """The rows of a step's pictures, each run with the place of its first token in the step."""
    placed: list[tuple[int, Tensor]] = []
    first = 0
    for chunk in chunks:
        if chunk.pictures is not None:
            placed += [(first + at, rows) for at, rows in chunk.pictures.between(chunk.start, chunk.end)]
        first += len(chunk.token_ids)
    return placed


def put_rows(embedded: "Tensor", placed: "Sequence[tuple[int, Tensor]]") -> None:
    """Replace rows of a step's embeddings [T, hidden]."""
    for at, rows in placed:
        embedded[at : at + len(rows)] = rows.to(embedded.device, embedded.dtype)
