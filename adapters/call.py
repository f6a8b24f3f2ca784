"""One execution of a request: its deadline, its client, and a trace of what happens to it."""

from adapters.types import Deadline


class Call:
    """One execution of a request.

    A request is what a client sent; a call is what the gateway does about it. Every `Upstream` gets both.
    """

    __slots__ = ("deadline",)

    def __init__(self, deadline: Deadline) -> None:
        self.deadline = deadline
