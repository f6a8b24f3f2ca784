"""The bounds of a step: the prompt tokens that it computes beside sequences that decode.

All sequences of a step wait for its end, so a chunk of a prompt lengthens the gap between two tokens of every sequence
that decodes beside it. The budget is a time: the engine reports how long each step lasted, and a chunk has as many
tokens as the target allows. Results do not depend on the cuts of a prompt, so the measured time changes no answer.

The target trades gaps for first tokens. With N requests in flight and a completion every T seconds, a request takes
N · T seconds (Little's law), so time that decoding gains, the wait for the first token loses. The target therefore
grows with that wait.

A sequence that decodes slows down for prompts of its own tenant only, and of its own priority or a more urgent one. So
a tenant's queue never widens the gaps of another tenant's streams, nor do background prompts widen those of a live
chat.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from adapters.wire.internal_headers import PRIORITIES
from runtimes.llm.engine.queue import Running, SequenceQueue
from runtimes.llm.sequence import Sequence


def shared_wait(queue: SequenceQueue, running: Running, now: float) -> float:
    """Seconds of waiting that all decoding sequences may slow down for: the shortest of their own prompts' longest
    waits; 0 if one of them has none.
    """
    if not (queue.size or running.prompts):
        return 0.0
    decoding = {(sequence.standing.tenant, sequence.standing.priority) for sequence in running.decoding.values()}
    waits = (_longest(now, _prompts(queue, running, tenant, priority)) for tenant, priority in decoding)
    return min(waits, default=0.0)


def _prompts(queue: SequenceQueue, running: Running, tenant: str, priority: int) -> Iterable[Sequence]:
    """A tenant's prompts that wait for their first token: all that have begun, and the next of each line."""
    for sequence in (*running.prompts.values(), *queue.heads(tenant)):
        if sequence.standing.tenant == tenant and sequence.standing.priority <= priority and not sequence.begun:
            yield sequence


def _longest(now: float, prompts: Iterable[Sequence]) -> float:
    return max((now - sequence.arrived for sequence in prompts), default=0.0)


LIVE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """Bounds, in sequences and tokens. `max_model_len` counts prompt and answer together.

    Raises ValueError if the bounds contradict each other.
    """

    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    max_queue: int
    max_step_seconds: float = 0.05
    """The longest step in which sequences decode: the chunks of prompts fit into it (`StepBudget`)."""
    background: int = PRIORITIES["batch"]
    """The priority from which sequences are background work: they rest while a live prompt waits for its first token,
    and their prompts are computed in brief steps for LIVE_SECONDS after a live request."""
    whole_prompts: bool = False
    """No prompt is cut into chunks: the model needs a whole text at once, and a step holds the longest."""

    def __post_init__(self) -> None:
        if self.max_model_len < 2:
            raise ValueError(f"max_model_len must hold a prompt and an answer: 2 or more, not {self.max_model_len}")
        if self.max_step_seconds <= 0:
            raise ValueError(f"max_step_seconds must be more than 0, not {self.max_step_seconds}")
        if self.max_num_seqs < 1 or self.max_queue < 1:
            raise ValueError("max_num_seqs and max_queue must be 1 or more")
        # Each running sequence must be able to take one token in every step.
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ValueError(
                f"max_num_batched_tokens ({self.max_num_batched_tokens}) must be at least"
                f" max_num_seqs ({self.max_num_seqs})"
            )
        if self.whole_prompts and self.max_num_batched_tokens < self.max_model_len:
            raise ValueError(
                f"max_num_batched_tokens ({self.max_num_batched_tokens}) must hold the longest prompt"
                f" ({self.max_model_len} tokens): this model computes no part of one"
            )


SMALLEST_SHARE = 8
"""A chunk has at least one part in so many of `max_tokens`, so that a prompt advances on a slow machine too."""

WAIT_SHARE = 1 / 50
"""The part of a prompt's wait that a step may last."""
LONGEST = 2
"""The longest step for that reason, in targets: ten tokens a second, faster than people read."""

BRIEF_SHARE = 0.5
"""The part of a step's time that background work takes while live requests come."""

_RATE = 0.5
_LONG = 64
"""Prompt tokens from which a step measures the cost of one: the cost of a shorter step is that of reading the weights.
"""


class StepBudget:
    """`max_tokens` bounds every step, `seconds` the steps in which sequences decode. It has no clock.

    A step may last longer, up to the greater of two bounds: twice as long as a step without prompts, so that a model
    whose decode step exceeds `seconds` computes prompts at half of its speed; and WAIT_SHARE of the time that a prompt
    has waited, up to LONGEST times `seconds`.
    """

    def __init__(self, max_tokens: int, seconds: float) -> None:
        self._max_tokens = max_tokens
        self._seconds = seconds
        self._decode = 0.0  # seconds of a step without prompts
        self._decodes = 0.0  # its sequences
        self._token = 0.0

    @property
    def prompt_token(self) -> float:
        """Seconds that a prompt token adds to a step; 0 before one was measured."""
        return self._token

    def prompt_tokens(self, decodes: int, waited: float = 0.0) -> int:
        """Prompt tokens of the next step, in which `decodes` sequences decode and may slow down for a prompt that has
        `waited` so many seconds."""
        most = self._max_tokens - decodes
        if not decodes or not self._token:
            return most
        target = max(self._seconds, min(waited * WAIT_SHARE, LONGEST * self._seconds))
        left = max(target, 2 * self._decode) - self._decode
        least = max(1, self._max_tokens // SMALLEST_SHARE)
        return min(most, max(least, int(left / self._token)))

    def brief_decodes(self) -> int:
        """Sequences of background work that may decode in a brief step."""
        if not self._decode:
            return self._max_tokens
        return max(1, int(BRIEF_SHARE * self._seconds * self._decodes / self._decode))

    def brief_prompt_tokens(self, decodes: int) -> int:
        """Prompt tokens of a step of background work, which a live prompt may have to wait for: the step takes no
        longer than BRIEF_SHARE of the usual time, as far as the smallest chunk allows."""
        most = self._max_tokens - decodes
        left = BRIEF_SHARE * self._seconds - (self._decode if decodes else 0.0)
        least = max(1, self._max_tokens // (2 * SMALLEST_SHARE))
        return min(most, max(least, int(left / self._token) if self._token else least))

    def measured(self, decodes: int, prompt_tokens: int, seconds: float) -> None:
        """A step of so many sequences that decode and so many prompt tokens lasted `seconds`."""
        if seconds <= 0:
            return
        if not prompt_tokens:
            self._decode = _moved(self._decode, seconds, _RATE)
            self._decodes = _moved(self._decodes, decodes, _RATE)
            return
        # The decode step was measured with other sequences: it never explains more than three quarters of this one.
        added = seconds - min(self._decode, 0.75 * seconds) if decodes else seconds
        self._token = _moved(self._token, added / prompt_tokens, _RATE * min(1.0, prompt_tokens / _LONG))


def _moved(mean: float, value: float, rate: float) -> float:
    """The exponential moving average; the first value begins it."""
    return mean + rate * (value - mean) if mean else value
