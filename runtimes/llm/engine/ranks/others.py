"""The ranks of a model as rank 0 has them: it starts the others, plans their steps, and watches that they live."""

import contextlib
import logging
import queue
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec
import torch
from torch import Tensor

from adapters.process import TemporaryFolder
from runtimes.llm.engine.executor import Executor
from runtimes.llm.engine.ranks.channel import (
    Message,
    RankChannel,
    RankEnded,
    RankFailed,
    RankLoaded,
    RankOptions,
    RankReady,
    RankRoom,
    RankStart,
    StepPlan,
)
from runtimes.llm.engine.ranks.group import TorchRanks
from runtimes.llm.model.lora import LowRankAdapter
from runtimes.llm.model.split import ModelSplit
from runtimes.llm.sequence import Chunk, StepAdapter

END_SECONDS = 10.0
"""Seconds in which a rank ends by itself after its socket was closed."""
REASON_SECONDS = 5.0
"""Seconds in which the end of a process is noticed, after a meeting or a sum with it has failed."""
_STDERR = 2
M = TypeVar("M")
log = logging.getLogger(__name__)


class _Rank:
    """Another rank: its process, and what it has sent. `ended` is called with the reason of its end, once."""

    def __init__(self, number: int, ended: Callable[[str], None]) -> None:
        self.number = number
        self._ended = ended
        ours, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-m", "runtimes.llm.engine.ranks.process"]
            self.process = subprocess.Popen(command, stdin=theirs.fileno(), stdout=_STDERR)  # noqa: S603 - our module
        self.channel = RankChannel(ours)
        self._inbox: queue.SimpleQueue[Message | str] = queue.SimpleQueue()
        threading.Thread(target=self._read, name=f"llm-rank-{number}", daemon=True).start()

    def expect(self, kind: type[M]) -> M:
        """The next message, which must be of that kind. Raises RuntimeError with the reason if the rank has ended."""
        message = self._inbox.get()
        if isinstance(message, kind):
            return message
        raise RuntimeError(message if isinstance(message, str) else f"rank {self.number} sent {message!r}")

    def _read(self) -> None:
        reason = None
        with contextlib.suppress(OSError, ValueError):  # closed by this process
            while (message := self.channel.receive()) is not None:
                if isinstance(message, RankFailed):
                    reason = message.reason
                else:
                    self._inbox.put(message)
        status = self.process.wait()
        how = f"status {status}" if status >= 0 else f"signal {-status}"
        ended = f"rank {self.number} ended ({reason or how})"
        self._inbox.put(ended)
        self._ended(ended)

    def end(self) -> None:
        """Close its socket, and kill it if it does not end then."""
        self.channel.close()
        try:
            self.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            log.warning("rank %d does not end, and is killed", self.number)
            self.process.kill()
            self.process.wait()


class Ranks:
    """Rank 0's view. The methods up to `start` are called once, in their order; then come the steps, by one thread.

    `close` may come at any moment, once.
    """

    def __init__(self, split: ModelSplit) -> None:
        self.group = TorchRanks(split)
        self.size = split.size
        self._folder = TemporaryFolder()  # only this user may enter it
        self._store = str(Path(self._folder.name) / "store")
        self._others: list[_Rank] = []
        self._closing = False
        self._reason: str | None = None
        self._failed = threading.Event()
        self._on_failure: Callable[[RankEnded], None] | None = None
        self._lock = threading.Lock()

    def launch(self, options: RankOptions) -> None:
        """Start the other ranks, which load their parts meanwhile."""
        for rank in range(1, self.size):
            other = _Rank(rank, self._end)
            self._others.append(other)
            with contextlib.suppress(OSError):  # it has ended: `connect` raises the reason
                other.channel.send(msgspec.structs.replace(options, rank=rank, store=self._store))

    def connect(self, device: torch.device) -> None:
        """Wait until all have loaded, and meet. Raises RuntimeError with the reason if one cannot."""
        for other in self._others:
            other.expect(RankLoaded)
        try:
            self.group.connect(self._store, device)
        except RuntimeError as error:  # torch's, which does not say who is missing
            if not self._failed.wait(REASON_SECONDS):
                raise
            raise RuntimeError(self._reason) from error

    def room(self, blocks: int) -> int:
        """The pages that all ranks have memory for, of at most `blocks`."""
        return min(blocks, *(other.expect(RankRoom).blocks for other in self._others))

    def on_one_device(self, device: torch.device) -> int:
        """The ranks that share the memory of `device`."""
        return 1 if device.type == "cuda" else self.size

    def started(self, own: Executor, blocks: int, block_size: int, context_length: int) -> "RankedExecutor":
        """Let the others allocate their pages too. Raises RuntimeError with the reason if one cannot."""
        for other in self._others:
            with contextlib.suppress(OSError):
                other.channel.send(RankStart(blocks, context_length))
        for other in self._others:
            other.expect(RankReady)
        return RankedExecutor(own, self, block_size)

    def watch(self, on_failure: Callable[[RankEnded], None]) -> None:
        """Call `on_failure` from any thread when a rank ends, or has ended."""
        with self._lock:
            self._on_failure = on_failure
            reason = self._reason
        if reason is not None:
            on_failure(RankEnded(reason))

    @contextlib.contextmanager
    def planned(self, plan: StepPlan) -> Iterator[None]:
        """Let all ranks compute `plan`, as the block does for rank 0.

        Raises RankEnded for every failure: ranks that have not computed the same cannot go on.
        """
        try:
            for other in self._others:
                other.channel.send(plan)
            yield
        except Exception as error:
            # The sum fails a moment before the end of the other process is noticed.
            noticed = isinstance(error, OSError | RuntimeError) and self._failed.wait(REASON_SECONDS)
            raise RankEnded(self._reason if noticed and self._reason else f"rank 0 failed: {error}") from error

    def close(self) -> None:
        """End all other ranks."""
        with self._lock:
            if self._closing:
                return
            self._closing = True
        for other in self._others:
            other.end()
        self.group.close()
        self._folder.cleanup()

    def _end(self, reason: str) -> None:
        with self._lock:
            if self._closing or self._reason is not None:
                return
            self._reason = reason
            self._failed.set()
            on_failure = self._on_failure
        log.error("%s", reason)
        if on_failure is not None:
            on_failure(RankEnded(reason))


class RankedExecutor:
    """The executor of rank 0, whose steps the other ranks compute with it."""

    def __init__(self, own: Executor, ranks: Ranks, block_size: int) -> None:
        self._own = own
        self._ranks = ranks
        self._block_size = block_size

    def logits(self, chunks: Sequence[Chunk], rows: Sequence[int]) -> Tensor:
        with self._ranks.planned(StepPlan.of("logits", chunks, self._block_size, rows)):
            return self._own.logits(chunks, rows)

    def hidden(self, chunks: Sequence[Chunk]) -> Tensor:
        with self._ranks.planned(StepPlan.of("hidden", chunks, self._block_size)):
            return self._own.hidden(chunks)

    def prepared(self, adapter: LowRankAdapter) -> StepAdapter:
        return self._own.prepared(adapter)
