"""The counter in force. A reload may begin, move or end the recording."""

from config.schema.config import Config
from gateway.features.usage.counter import UsageCounter
from gateway.features.usage.writer import folder_of


class LiveUsage:
    """`configure` at the start and after each reload, then `close`. `counter` is None if usage is not recorded."""

    def __init__(self, process: str | None = None) -> None:
        """`process` identifies this process in the names of files."""
        self._process = process
        self.counter: UsageCounter | None = None
        self._lost = 0

    @property
    def lost(self) -> int:
        """Requests that could not be counted."""
        return self._lost + (0 if self.counter is None else self.counter.lost)

    def configure(self, config: Config) -> UsageCounter | None:
        """Put a configuration in force, and return its counter."""
        folder = folder_of(config)
        if self.counter is not None and self.counter.folder != folder:
            self.close()
        if self.counter is None and folder is not None:
            self.counter = UsageCounter(folder, self._process)
        if self.counter is not None:
            self.counter.currency = _currency(config)
        return self.counter

    def close(self) -> None:
        """Leave the counts to the writer."""
        if self.counter is not None:
            self._lost += self.counter.lost
            self.counter.close()
            self.counter = None


def _currency(config: Config) -> str:
    """The currency of all prices; empty if there are several or none."""
    currencies = {model.price.currency for model in config.models if model.price is not None}
    return currencies.pop() if len(currencies) == 1 else ""
