"""The topic of an answer: that of the binding, or one of those that the binding allows a message to name."""

from config.schema.bus import ReplyConfig
from policies.globs import GlobSet


class ReplyTopics:
    """The topics of one binding."""

    __slots__ = ("_allowed", "_topic")

    def __init__(self, config: ReplyConfig) -> None:
        self._topic = config.topic
        self._allowed = GlobSet(config.allowed)

    def of(self, requested: str | None) -> str | None:
        """The topic of an answer; None for a topic that a message may not name."""
        if not requested or requested == self._topic:
            return self._topic
        return requested if requested in self._allowed else None
