"""The sink in force. A reload may begin, move or end the storage of requests."""

from collections import Counter

from config.schema.config import Config
from gateway.features.requests.sink import RequestSink
from gateway.features.requests.writer import spool_of


class LiveRequests:
    """`configure` at the start and after each reload, then `close`. `sink` is None if requests are not stored."""

    def __init__(self, process: str | None = None) -> None:
        """`process` identifies this process in the names of files."""
        self._process = process
        self.sink: RequestSink | None = None
        self._lost: Counter[str] = Counter()

    @property
    def lost(self) -> Counter[str]:
        """Requests that could not be stored, by reason."""
        return self._lost if self.sink is None else self._lost + self.sink.lost

    def configure(self, config: Config) -> RequestSink | None:
        """Put a configuration in force, and return its sink."""
        folder = spool_of(config)
        if self.sink is not None and self.sink.folder != folder:
            self.close()
        if self.sink is None and folder is not None:
            self.sink = RequestSink(folder, self._process)
        if self.sink is not None:
            self.sink.configure(config)
        return self.sink

    def close(self) -> None:
        """Leave the records to the writer."""
        if self.sink is not None:
            self.sink.close()
            self._lost += self.sink.lost
            self.sink = None
