"""The states of a batch, its counts, and the completion window that a client requests.

validating → failed
validating → in_progress → finalizing → completed
             in_progress → finalizing → expired       the window has ended: the rest is reported as expired
validating, in_progress → cancelling → cancelled      the rest is reported as cancelled
"""

import re
from typing import Final, Literal

import msgspec

from policies.batches.lines import LineProblem

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_WINDOW = re.compile(r"([1-9]\d{0,5})([smhd])")


def window_of(text: object, longest: float) -> float | None:
    """Seconds of a window such as `24h`; None for a text that is none, or that is longer than the longest."""
    if text == "24h":
        return min(longest, 86400.0)  # the only window of OpenAI's API
    match = _WINDOW.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        return None
    seconds = float(int(match[1]) * _SECONDS[match[2]])
    return seconds if seconds <= longest else None


Status = Literal["validating", "in_progress", "finalizing", "completed", "failed", "expired", "cancelling", "cancelled"]
ENDED: Final = frozenset({"completed", "failed", "expired", "cancelled"})
STOPPED: Final = frozenset({"cancelling", *ENDED})
"""States in which no line begins."""


class BatchProgress(msgspec.Struct):
    """The part of a batch that changes. `times` are Unix seconds by state."""

    status: Status = "validating"
    total: int = 0
    tokens: int = 0
    """Estimated tokens of all prompts."""
    times: dict[str, float] = {}
    problems: list[LineProblem] = []
    succeeded: int = 0
    failed: int = 0
    unfinished: int = 0
    """Lines without a result at the end: expired or cancelled."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    model: str = ""
    """The model of all lines; empty if there are several."""
    expired: bool = False
    """Whether the window ended before the lines did."""

    def move(self, status: Status, now: float) -> None:
        """Enter a state."""
        self.status = status
        self.times[status] = now


class LogPart(msgspec.Struct, array_like=True):
    """The durable part of the log that one holder of a task wrote."""

    token: int
    size: int


class Submission(msgspec.Struct):
    """Lines that a provider runs as one of its batches."""

    id: str
    pool: str
    since: float
    """Unix seconds of the submission."""
    numbers: list[int]
    """The lines."""
    batch: str = ""
    """The provider's id; empty before the provider has confirmed the submission."""


class ShardCounts(msgspec.Struct):
    """The results of one shard, its logs, and its submissions to providers."""

    logs: list[LogPart] = []
    succeeded: int = 0
    failed: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    submissions: list[Submission] = []


def add_shards(progress: BatchProgress, shards: list[ShardCounts]) -> None:
    """Set the counts to the sums of the shards."""
    progress.succeeded = sum(shard.succeeded for shard in shards)
    progress.failed = sum(shard.failed for shard in shards)
    progress.prompt_tokens = sum(shard.prompt_tokens for shard in shards)
    progress.completion_tokens = sum(shard.completion_tokens for shard in shards)


def may_cancel(status: Status) -> bool:
    """Whether a client may cancel a batch in this state."""
    return status in ("validating", "in_progress", "cancelling")


def end_of(progress: BatchProgress) -> Status:
    """The last state of a batch whose results are complete."""
    if progress.status == "cancelling":
        return "cancelled"
    return "expired" if progress.expired else "completed"
