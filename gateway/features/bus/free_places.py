"""The free places of the pools of a binding's model."""

from collections.abc import Callable
from urllib.parse import unquote

from config.schema.bus import BindingConfig
from gateway.request.snapshot import Snapshot
from gateway.traffic.load import load_of
from policies.batches.lines import TENSORS
from policies.bus import room_of


class FreePlaces:
    """How many more messages of a binding may be received."""

    def __init__(self, binding: BindingConfig, snapshot: Callable[[], Snapshot], clock: Callable[[], float]) -> None:
        self._concurrency = binding.concurrency
        match = TENSORS.fullmatch(binding.path)
        self._model = binding.model if match is None or binding.paths else unquote(match[1])
        self._snapshot = snapshot
        self._clock = clock

    def count(self, in_work: int) -> int:
        """The number of messages beside `in_work` messages."""
        if in_work >= self._concurrency:
            return 0
        snapshot = self._snapshot()
        load = load_of(snapshot.pools, snapshot.pools_of(self._model), self._clock())
        return room_of(load, in_work, self._concurrency)
