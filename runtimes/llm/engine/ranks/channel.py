"""What rank 0 and another rank of a model tell each other, and the socket between them.

Each message is its length and MessagePack. Rank 0 sends every step's plan here before it computes the step, and the
sums of the step are exchanged elsewhere (group.py). The system closes the socket when a process ends.
"""

import contextlib
import socket
import struct
from collections.abc import Iterable, Sequence
from typing import Literal, TypeAlias

import msgspec

from adapters.errors import BackendError
from runtimes.llm.engine.executor import ExecutorName
from runtimes.llm.memory import KVCacheName
from runtimes.llm.model.matrix import WeightsName
from runtimes.llm.sampling_params import SamplingParams
from runtimes.llm.sequence import Chunk
from runtimes.llm.weights.loader import DeviceName, DtypeName

SECONDS = 120.0
"""The longest that a rank waits for another one in a step."""
_LENGTH = struct.Struct("<I")
_TIMEVAL = struct.Struct("@ll")


class RankEnded(BackendError):
    """A rank has ended or failed, so no step can be computed any more. The message is for clients too."""


class RankOptions(msgspec.Struct, tag=True):
    """The first message to a rank: the model, what it takes of it, and where the ranks meet."""

    size: int
    model: str
    dtype: DtypeName
    device: DeviceName
    weights: WeightsName
    executor: ExecutorName
    threads: int
    kv_cache_bytes: int
    kv_cache_share: float | None
    kv_cache_dtype: KVCacheName
    block_size: int
    max_num_batched_tokens: int
    step_rows: int
    """The most rows of logits of a step."""
    rank: int = 0
    store: str = ""
    """The file through which the ranks learn each other's addresses."""


class RankLoaded(msgspec.Struct, tag=True):
    """The answer: its weights are in memory."""


ANY_NUMBER = 1 << 40


class RankRoom(msgspec.Struct, tag=True):
    """The pages for which the rank has memory; `ANY_NUMBER` if it does not count them."""

    blocks: int


class RankStart(msgspec.Struct, tag=True):
    """The pages that all ranks allocate, and the longest sequence."""

    blocks: int
    context_length: int


class RankReady(msgspec.Struct, tag=True):
    """The rank takes plans from now on, and answers nothing any more."""


class RankFailed(msgspec.Struct, tag=True):
    """The last message of a rank that cannot go on."""

    reason: str


class ChunkPlan(msgspec.Struct, array_like=True):
    """A `Chunk`, as far as an executor needs it."""

    sequence_id: int
    start: int
    token_ids: tuple[int, ...]
    pages: list[int]

    def chunk(self) -> Chunk:
        return Chunk(self.sequence_id, self.start, self.token_ids, self.pages, True, _PARAMS, 0)


class StepPlan(msgspec.Struct, tag=True):
    """A call of `Executor.logits` or `Executor.hidden`."""

    call: Literal["logits", "hidden"]
    chunks: list[ChunkPlan]
    rows: list[int] = []

    @classmethod
    def of(
        cls, call: Literal["logits", "hidden"], chunks: Iterable[Chunk], block_size: int, rows: Sequence[int] = ()
    ) -> "StepPlan":
        plans = [
            ChunkPlan(one.sequence_id, one.start, one.token_ids, list(one.block_table[: -(-one.end // block_size)]))
            for one in chunks
        ]
        return cls(call, plans, list(rows))


_PARAMS = SamplingParams(max_tokens=1)
Message: TypeAlias = RankOptions | RankLoaded | RankRoom | RankStart | RankReady | RankFailed | StepPlan


class RankChannel:
    """One end of the socket between two ranks."""

    def __init__(self, connection: socket.socket, seconds: float = SECONDS) -> None:
        whole = int(seconds)
        waits = _TIMEVAL.pack(whole, int((seconds - whole) * 1_000_000))
        # Of writes alone: a rank that stands still would hold this one, and its end, for good.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, waits)
        self._socket = connection
        self._file = connection.makefile("rb")
        self._decoder = msgspec.msgpack.Decoder(Message)

    def send(self, message: Message) -> None:
        """Raises OSError if the other end is closed, or has not read for so many seconds."""
        content = msgspec.msgpack.encode(message)
        self._socket.sendall(_LENGTH.pack(len(content)) + content)

    def receive(self) -> Message | None:
        """The next message; None at the end."""
        head = self._file.read(_LENGTH.size)
        if len(head) < _LENGTH.size:
            return None
        length = _LENGTH.unpack(head)[0]
        content = self._file.read(length)
        return None if len(content) < length else self._decoder.decode(content)

    def close(self) -> None:
        """The other end reads the end of messages."""
        with contextlib.suppress(OSError):  # the other end is closed already
            self._socket.shutdown(socket.SHUT_RDWR)
        self._file.close()
        self._socket.close()
