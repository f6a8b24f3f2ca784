"""The replicas that a change of their number adds or removes."""

from collections.abc import Collection
from itertools import count, islice


def resized(running: Collection[int], ready: Collection[int], replicas: int) -> tuple[int, ...]:
    """As many numbers as `replicas`: the lowest free ones are added; removed are those that do not serve, then the
    highest."""
    order = sorted(running, key=lambda number: (number not in ready, number))[:replicas]
    free = (number for number in count() if number not in running)
    return tuple(sorted((*order, *islice(free, max(0, replicas - len(order))))))
