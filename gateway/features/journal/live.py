"""The sink in force. A reload may begin, move or end the sections `usage` and `requests`."""

from config.schema.config import Config
from gateway.features.journal.folders import folder_of
from gateway.features.journal.sink import RequestSink


class LiveJournal:
    """`configure` at the start and after each reload, then `close`. `sink` is None without both sections."""

    def __init__(self) -> None:
        self.sink: RequestSink | None = None
        self._uncounted = self._unrecorded = 0

    @property
    def uncounted(self) -> int:
        """Requests that are lost for usage."""
        return self._uncounted + (0 if self.sink is None else self.sink.uncounted)

    @property
    def unrecorded(self) -> int:
        """Requests that are lost for the search."""
        return self._unrecorded + (0 if self.sink is None else self.sink.unrecorded)

    def configure(self, config: Config) -> RequestSink | None:
        """Put a configuration in force, and return its sink."""
        folder = folder_of(config)
        if self.sink is not None and self.sink.folder != folder:
            self.close()
        if self.sink is None and folder is not None:
            self.sink = RequestSink(folder)
        if self.sink is not None:
            self.sink.configure(config)
        return self.sink

    def close(self) -> None:
        """Leave the requests to their readers."""
        if self.sink is not None:
            self._uncounted, self._unrecorded = self.uncounted, self.unrecorded
            self.sink.close()
            self.sink = None
