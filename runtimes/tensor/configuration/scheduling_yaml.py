"""The parts of `model.yaml` that say how requests are joined and kept together."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from config.schema.section import Section
from config.schema.text import Shape
from config.schema.units import Delay, Duration
from runtimes.tensor.configuration.model_config import (
    Dims,
    DynamicBatching,
    QueuePolicy,
    SequenceBatching,
    SequenceControl,
    SequenceState,
)


class Switch(Section):
    """A section that `true` turns on as it is."""

    @model_validator(mode="before")
    @classmethod
    def _on(cls, data: object) -> object:
        return {} if data is True else data


class QueueSection(Section):
    """What happens to requests that wait."""

    max_queue_size: int = Field(0, ge=0)
    """Requests; 0 leaves it to the runtime's own bound."""
    default_timeout: Delay = 0.0
    """How long one may wait; its deadline only when absent."""
    timeout_action: Literal["reject", "delay"] = "reject"
    """What becomes of one that waited longer: refused, or put behind all others."""
    allow_timeout_override: bool = False
    """Whether a request's own ``timeout`` may shorten it."""

    def policy(self) -> QueuePolicy:
        return QueuePolicy(self.max_queue_size, self.default_timeout, self.timeout_action, self.allow_timeout_override)


class DynamicSection(Switch):
    """How requests are joined into batches. ``true`` is enough."""

    preferred_batch_size: tuple[int, ...] = ()
    """Sizes that the model is quickest at."""
    max_queue_delay: Delay = 0.0
    """The longest that a request waits for company while an instance is idle."""
    preserve_ordering: bool = False
    """Answers in the order of the requests."""
    priority_levels: int = Field(0, ge=0)
    """1 is the most urgent; 0: all are alike."""
    default_priority_level: int = Field(0, ge=0)
    """Of requests that name none."""
    queue: QueueSection = QueueSection()
    """The bounds of the queue."""
    priority_queues: dict[Annotated[str, Shape(r"[1-9]\d{0,3}", "a level, from 1")], QueueSection] = Field({})
    """By level, where one's bounds differ."""
    allowed_batch_sizes: tuple[int, ...] = ()
    """A batch is padded up to the next of these, for models that are compiled for a few sizes."""
    pad_to: dict[str, tuple[int, ...]] = Field({})
    """By input: lengths to which its variable dimensions are padded with zeros."""

    def batching(self) -> DynamicBatching:
        return DynamicBatching(
            self.preferred_batch_size,
            self.max_queue_delay,
            self.preserve_ordering,
            self.priority_levels,
            self.default_priority_level,
            self.queue.policy(),
            {int(level): queue.policy() for level, queue in self.priority_queues.items()},
            self.allowed_batch_sizes,
            self.pad_to,
        )


class ControlSection(Section):
    """An input that tells the model about the sequence of each row."""

    kind: Literal["start", "ready", "end", "corrid"]
    """What it tells: the first request, a row in use, the last request, the sequence's id."""
    name: str = Field(min_length=1)
    """The model's input."""
    datatype: str
    """``INT32``, ``FP32`` or ``BOOL``; of ``corrid`` an integer, or ``BYTES``."""
    false_true: tuple[float, float] = (0, 1)
    """The values for no and yes."""


class StateSection(Section):
    """A tensor that the runtime keeps between the requests of a sequence."""

    input_name: str = Field(min_length=1)
    """Where the model gets it."""
    output_name: str = Field(min_length=1)
    """Where the model gives the next value."""
    datatype: str
    """As the Open Inference Protocol spells it."""
    dims: Dims
    """Without the batch; -1 for any length."""
    initial_dims: Dims | None = None
    """The first value's shape; 1 in place of each -1 when absent."""
    initial_file: str = ""
    """A file of the model's ``initial_state`` folder that holds the first value; zeros when absent."""


class SequenceSection(Switch):
    """How requests of one sequence reach one instance, in order."""

    strategy: Literal["direct", "oldest"] = "direct"
    """``direct``: a row of an instance is a sequence's own until it ends. ``oldest``: rows are given by age."""
    max_sequence_idle: Duration = 1.0
    """A sequence that is silent for longer is ended."""
    max_candidate_sequences: int = Field(0, ge=0)
    """Open sequences at a time; 0 leaves it to the runtime's own bound."""
    max_queue_delay: Delay = 0.0
    """The longest that a request waits for rows of other sequences."""
    minimum_slot_utilization: float = 0.0
    """The share of rows that must have a request, before that delay is over."""
    preferred_batch_size: tuple[int, ...] = ()
    """Sizes that the model is quickest at (``oldest``)."""
    preserve_ordering: bool = False
    """Answers in the order of the requests (``oldest``)."""
    controls: tuple[ControlSection, ...] = ()
    """What the model is told about a sequence."""
    states: tuple[StateSection, ...] = ()
    """What is kept for the model."""

    def batching(self) -> SequenceBatching:
        plain = {name: getattr(self, name) for name in type(self).model_fields if name not in ("controls", "states")}
        return SequenceBatching(
            **plain,
            controls=tuple(SequenceControl(c.kind, c.name, c.datatype, c.false_true) for c in self.controls),
            states=tuple(
                SequenceState(
                    s.input_name,
                    s.output_name,
                    s.datatype,
                    s.dims,
                    initial_file=s.initial_file,
                    initial_dims=s.initial_dims,
                )
                for s in self.states
            ),
        )
