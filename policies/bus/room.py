"""How many more messages a process may receive: those for which places are free now."""

from policies.batches.admission import PoolLoad


def room_of(load: PoolLoad, in_work: int, concurrency: int) -> int:
    """The number of messages beside `in_work` messages; 0 while requests wait, or while no server is healthy."""
    if load.waiting:
        return 0
    return max(0, min(concurrency - in_work, load.capacity - load.in_flight))
