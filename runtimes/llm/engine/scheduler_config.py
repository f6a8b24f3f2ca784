"""The bounds of a step and of the queue."""

from dataclasses import dataclass

from adapters.wire.internal_headers import PRIORITIES

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
