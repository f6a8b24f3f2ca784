"""The log of results: one record for each line, with its output and its charge.

log    = records, in the order in which the lines ended
record = length, checksum (CRC-32 of the rest), then a msgpack array
"""

from io import BytesIO
from typing import NamedTuple

import msgspec

from gateway.features.usage.labels import UsageLabels, UsageRow
from gateway.state.journal import framed, frames

MAX_RECORD = 1 << 30


class LineResult(msgspec.Struct, array_like=True, frozen=True):
    """The result of one line. `output` is the line of the output file or the error file, without its end."""

    number: int
    succeeded: bool
    output: bytes
    labels: UsageLabels | None = None
    """The labels of the charge; None for a line that costs nothing and used nothing."""
    hour: int = 0
    amounts: tuple[int, ...] = ()
    """In the order of `gateway.features.usage.labels.COUNTERS`."""

    @property
    def prompt_tokens(self) -> int:
        return self.amounts[3] if self.amounts else 0

    @property
    def completion_tokens(self) -> int:
        return self.amounts[4] if self.amounts else 0


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(LineResult).decode


class ReadLog(NamedTuple):
    """The whole records of a log, and their size in bytes."""

    results: list[LineResult]
    size: int


def encode_result(result: LineResult) -> bytes:
    """One record."""
    return framed(_encode(result))


def read_log(data: bytes) -> ReadLog:
    """Read records up to the first one that is torn or damaged."""
    results, size = list[LineResult](), 0
    for end, payload in frames(BytesIO(data), len(data)):
        try:
            results.append(_decode(payload))
        except msgspec.DecodeError:
            break
        size = end
    return ReadLog(results, size)


class Charges:
    """The charges of one log, as rows of usage. The same log always has the same rows."""

    def __init__(self) -> None:
        self._slots: dict[tuple[UsageLabels, int], list[int]] = {}

    def add(self, result: LineResult) -> None:
        """Add the charge of a result."""
        if result.labels is None:
            return
        key = (UsageLabels(*result.labels), result.hour)
        sums = self._slots.setdefault(key, [0] * len(result.amounts))
        for i, amount in enumerate(result.amounts):
            sums[i] += amount

    def rows(self) -> list[tuple[int, UsageRow]]:
        """The hour and the row of each slot."""
        slots = enumerate(self._slots.items())
        return [(hour, UsageRow(slot, labels, tuple(sums))) for slot, ((labels, hour), sums) in slots]
