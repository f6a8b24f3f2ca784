"""Errors of sequences that the engine rejects, or ends before their answer is complete."""

from adapters.errors import CapacityError, ContextTooLong, DeadlineError

RETRY_SECONDS = 1.0
"""The queue has no free place. One becomes free as soon as the next answer has ended."""


class QueueFull(CapacityError):
    """The maximum of sequences wait already."""

    def __init__(self, message: str) -> None:
        super().__init__(message, retry_after=RETRY_SECONDS)


class TooLate(DeadlineError):
    """The deadline of a sequence has passed, while it waited or ran."""

    def __init__(self) -> None:
        super().__init__("The request's deadline has passed.")


class PromptTooLong(ContextTooLong, ValueError):
    """The prompt leaves no room for an answer: it has `length` tokens, and `limit` is the maximum."""

    def __init__(self, *, length: int, limit: int) -> None:
        super().__init__(f"the prompt has {length} tokens; the longest this engine takes has {limit}")
        self.length = length
        self.limit = limit
