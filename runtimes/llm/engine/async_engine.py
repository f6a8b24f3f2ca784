"""The engine's interface for asyncio.

AsyncEngine an Engine in its own thread
Generation    one answer as it grows, an async iterator of TokenOutput
"""

import asyncio
import contextlib
import functools
import logging
import threading
from collections.abc import Callable, Collection, Sequence

from adapters.errors import BackendError, InferenceError
from runtimes.histogram import Histogram
from runtimes.llm.engine.core import Engine, EngineConfig, EngineStats, StepRunner
from runtimes.llm.engine.queue import PromptTooLong, QueueFull, TooLate
from runtimes.llm.engine.ranks.channel import RankEnded
from runtimes.llm.picture_rows import PictureRows
from runtimes.llm.sequence import (
    DEFAULT_STANDING,
    Constraint,
    FinishReason,
    PhaseTimes,
    Pooling,
    SamplingParams,
    Standing,
    StepAdapter,
    TokenOutput,
)

__all__ = [
    "AsyncEngine",
    "Engine",
    "EngineConfig",
    "EngineDead",
    "EngineStats",
    "FinishReason",
    "Generation",
    "PromptTooLong",
    "QueueFull",
    "SamplingParams",
    "StepRunner",
    "TokenOutput",
    "TooLate",
]


_NO_ANSWER = SamplingParams(max_tokens=1)
_LOG = logging.getLogger(__name__)


class EngineDead(BackendError):
    """The engine has failed or was closed, and answers no request."""


class Generation:
    """An answer in progress. It belongs to the event loop that submitted it.

    Iteration ends after the TokenOutput with a finish_reason, or after `cancel`. It raises EngineDead if the engine
    ends first, and the error that ended this answer alone, such as TooLate, or QueueFull if the answer lost its place
    in the queue. It buffers at most `max_tokens` unread tokens.
    """

    def __init__(self, cancel: Callable[[], None], times: PhaseTimes | None = None) -> None:
        self.times = times
        """When its phases began, if it is traced."""
        self._cancel = cancel
        self._last_output: float | None = None
        self._outputs: asyncio.Queue[TokenOutput | InferenceError | None] = asyncio.Queue()
        self._ended = False

    def __aiter__(self) -> "Generation":
        return self

    async def __anext__(self) -> TokenOutput:
        output = await self._outputs.get()
        if isinstance(output, TokenOutput):
            return output
        self._outputs.put_nowait(output)  # later calls get the end again
        if output is None:
            raise StopAsyncIteration
        raise output

    def cancel(self) -> None:
        """Stop generating; the KV pages are free when this returns. Unread tokens are dropped."""
        if self._ended:
            return
        self._cancel()
        while not self._outputs.empty():
            self._outputs.get_nowait()
        self._end(None)

    def _push(self, output: TokenOutput, now: float, intervals: Histogram) -> None:
        if self._last_output is not None:
            intervals.add(now - self._last_output)
        self._last_output = now
        if (times := self.times) is not None:
            times.first_token, times.last_token = times.first_token or now, now
        if output.error is None:
            self._outputs.put_nowait(output)
        if output.ends:
            self._end(output.error)

    def _end(self, error: InferenceError | None) -> None:
        self._ended = True
        self._outputs.put_nowait(error)


class AsyncEngine:
    """Runs an Engine's steps in a thread. All methods belong to the loop that awaited `start`.

    One callback passes the tokens of a step to the loop, for any number of sequences.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._generations: dict[int, Generation] = {}
        self._dead: EngineDead | None = EngineDead("the engine has not been started")
        self._ended = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="llm-engine", daemon=True)
        self._loop: asyncio.AbstractEventLoop

    @property
    def alive(self) -> bool:
        """Whether `submit` accepts requests."""
        return self._dead is None

    @property
    def max_model_len(self) -> int:
        return self._engine.max_model_len

    @property
    def speculates(self) -> bool:
        """Whether tokens are proposed ahead."""
        return self._engine.speculates

    @property
    def max_queue(self) -> int:
        """The most sequences that may wait."""
        return self._engine.max_queue

    @property
    def vocab_size(self) -> int:
        return self._engine.vocab_size

    async def start(self) -> None:
        """Start the thread. An engine that has ended cannot start again."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()
        self._dead = None

    async def ended(self) -> None:
        """Wait until the engine has failed or was closed."""
        await self._ended.wait()

    async def aclose(self) -> None:
        """End the thread after its current step; open generations raise EngineDead. Idempotent."""
        self._die(EngineDead("the engine was closed"))
        self._engine.close()
        if self._thread.ident is not None:
            await asyncio.to_thread(self._thread.join)
        await asyncio.to_thread(self._engine.release)

    async def embed(
        self,
        prompt: Sequence[int],
        pooling: Pooling,
        salt: bytes = b"",
        *,
        standing: Standing = DEFAULT_STANDING,
        times: PhaseTimes | None = None,
        second_part: int | None = None,
        adapter: StepAdapter | None = None,
    ) -> TokenOutput:
        """The only output of a text to embed, which has its `pooled` vector [hidden]. The second text of a pair begins
        at `second_part`. Raises as `submit` does."""
        generation = self.submit(
            prompt, _NO_ANSWER, salt, pooling, standing=standing, times=times, second_part=second_part, adapter=adapter
        )
        try:
            return await anext(generation)
        finally:
            generation.cancel()

    def submit(
        self,
        prompt: Sequence[int],
        params: SamplingParams,
        salt: bytes = b"",
        pooling: Pooling | None = None,
        *,
        continued: int = 0,
        standing: Standing = DEFAULT_STANDING,
        constraint: Constraint | None = None,
        times: PhaseTimes | None = None,
        second_part: int | None = None,
        adapter: StepAdapter | None = None,
        pictures: PictureRows | None = None,
        prediction: Collection[int] = (),
    ) -> Generation:
        """Begin an answer. Prompts with the same salt and adapter share cached pages. The last `continued` tokens
        already belong to the answer. The `constraint` limits its tokens. `times` receives the times of its phases.
        `pictures` replace the embeddings of some tokens. Those of the `prediction` are proposed, if the engine
        `speculates`.

        Raises QueueFull, PromptTooLong, TooLate, EngineDead, or ValueError for unknown tokens.
        """
        if self._dead is not None:
            raise EngineDead(self._dead.message)
        sequence_id = self._engine.add(
            prompt, params, salt, pooling, continued=continued, standing=standing, constraint=constraint, times=times,
            second_part=second_part, adapter=adapter, pictures=pictures, prediction=prediction,
        )  # fmt: skip
        generation = Generation(functools.partial(self._cancel, sequence_id), times)
        self._generations[sequence_id] = generation
        if params.max_tokens == 0:
            generation.cancel()
        return generation

    def stats(self) -> EngineStats:
        return self._engine.stats()

    def clock(self) -> float:
        """The clock of deadlines."""
        return self._engine.clock()

    def check_idle(self) -> None:
        """Raise AssertionError that names the leak, unless nothing runs or waits and every KV page is free."""
        self._engine.check_idle()
        if self._generations:
            raise AssertionError(f"{len(self._generations)} generations are open without a sequence")

    def _cancel(self, sequence_id: int) -> None:
        self._generations.pop(sequence_id, None)
        self._engine.abort(sequence_id)

    def _run(self) -> None:
        """The function of the thread."""
        try:
            while self._engine.wait_for_work():
                if outputs := self._engine.step():
                    self._call_loop(functools.partial(self._deliver, outputs))
        except BaseException as error:  # a panic of an extension is no Exception
            _LOG.exception("the engine failed")
            reason = f": {error.message}" if isinstance(error, RankEnded) else ""
            dead = EngineDead(f"the engine failed{reason}")
            dead.__cause__ = error
            self._call_loop(functools.partial(self._die, dead))

    def _call_loop(self, callback: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: no consumer is left
            self._loop.call_soon_threadsafe(callback)

    def _deliver(self, outputs: dict[int, TokenOutput]) -> None:
        now, intervals = self._engine.clock(), self._engine.intervals
        for sequence_id, output in outputs.items():
            generation = self._generations.get(sequence_id)
            if generation is None:  # cancelled while the step ran
                continue
            if output.ends:
                del self._generations[sequence_id]
            for earlier in output.before:
                generation._push(earlier, now, intervals)
            generation._push(output, now, intervals)

    def _die(self, dead: EngineDead) -> None:
        self._dead = self._dead or dead
        self._ended.set()
        for sequence_id, generation in self._generations.items():
            self._engine.abort(sequence_id)
            error = EngineDead(dead.message)
            error.__cause__ = dead.__cause__
            generation._end(error)
        self._generations.clear()
