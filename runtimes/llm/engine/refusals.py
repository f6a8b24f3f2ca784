"""Errors of sequences that the engine rejects, or ends before their answer is complete."""

from adapters.errors import CapacityError, ContextTooLong, DeadlineError

RETRY_SECONDS = 1.0
"""A place in the queue is free as soon as the next answer has ended."""


class QueueFull(CapacityError):
    """As many sequences wait as may wait."""

    def __init__(self, message: str) -> None:
        super().__init__(message, retry_after=RETRY_SECONDS)


class TooLate(DeadlineError):
    """Its deadline has passed, while it waited or ran."""

    def __init__(self) -> None:
        super().__init__("The request's deadline has passed.")


class PromptTooLong(ContextTooLong, ValueError):
    """The prompt leaves no room for an answer: `length` tokens, where `limit` is the most there may be."""

    def __init__(self, *, length: int, limit: int) -> None:
        super().__init__(f"the prompt has {length} tokens; the longest this engine takes has {limit}")
        self.length = length
        self.limit = limit
