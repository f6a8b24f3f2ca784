"""A scheduler of LLM requests in steps of made costs."""

from runtimes.llm.engine.block_manager import BlockManager
from runtimes.llm.engine.scheduler import Scheduler
from runtimes.llm.engine.step_budget import SchedulerConfig
from runtimes.llm.sequence import Sampled, SamplingParams, Sequence, Standing, StepBatch

TARGET, ANSWER = 0.05, 128


class Clocked:
    """A scheduler whose steps cost as much as on two cores for a model of 135M parameters."""

    def __init__(self) -> None:
        bounds = SchedulerConfig(
            max_model_len=4352, max_num_seqs=64, max_num_batched_tokens=512, max_queue=512, max_step_seconds=TARGET
        )
        self.scheduler = Scheduler(bounds, BlockManager(2912, 16))
        self.now = 0.0
        self.first: dict[int, float] = {}
        self.gaps: dict[int, list[float]] = {}
        self.ended: list[int] = []
        self._last: dict[int, float] = {}
        self._next = 0

    def arrive(self, prompt: int, answer: int = ANSWER, tenant: str = "t", priority: int = 0) -> int:
        identity, self._next = self._next, self._next + 1
        params, standing = SamplingParams(max_tokens=answer), Standing(tenant, 1.0, priority)
        self.scheduler.add(Sequence(identity, [identity] * prompt, params, standing=standing), self.now)
        return identity

    def step(self) -> list[int]:
        """The sequences that end."""
        batch = self.scheduler.schedule(self.now)
        seconds = cost(batch)
        begun, self.now = self.now, self.now + seconds
        self.scheduler.measured(batch, seconds)
        outputs = self.scheduler.update(batch, {one.sequence_id: Sampled(5) for one in batch.chunks if one.samples})
        for identity, output in outputs.items():
            if identity in self._last:
                self.gaps.setdefault(identity, []).append(self.now - self._last[identity])
            self.first.setdefault(identity, self.now)
            self._last[identity] = self.now
            if output.finish_reason is not None:
                self.ended.append(identity)
        assert self.now > begun
        return [identity for identity, output in outputs.items() if output.finish_reason is not None]


def cost(batch: StepBatch) -> float:
    """Seconds: the weights once, the products of each token, and attention over all tokens before it."""
    attention = sum(len(chunk.token_ids) * chunk.end for chunk in batch.chunks)
    return 0.006 + 0.00025 * batch.num_tokens + 1.2e-7 * attention + 2e-3 * batch.num_decodes
