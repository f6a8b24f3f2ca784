"""Who counts what is computed."""

from typing import Protocol


class Recorder(Protocol):
    def executed(self, requests: int, rows: int, queued: float, computed: float) -> None:
        """One batch was answered. `queued` is the sum over its requests, in seconds as `computed`."""
        ...


class NoRecorder:
    def executed(self, requests: int, rows: int, queued: float, computed: float) -> None:
        return
