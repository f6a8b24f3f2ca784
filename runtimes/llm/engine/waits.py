"""The wait of the prompts for which the sequences of a step may slow down.

A sequence that decodes slows down for prompts of its own tenant only, and of its own priority or a more urgent one. So
a tenant's queue never widens the gaps of another tenant's streams, nor do background prompts widen those of a live
chat.
"""

from collections.abc import Iterable

from runtimes.llm.engine.queue import SequenceQueue
from runtimes.llm.engine.running import Running
from runtimes.llm.engine.sequence import Sequence


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
