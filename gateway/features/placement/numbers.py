"""The replicas of each pool that should run. A replica is identified by its pool and a number from 0."""

from itertools import count, islice

from config.schema.config import RuntimeConfig


class ReplicaNumbers:
    """The replicas that were chosen for each pool; before a choice, as many as always run."""

    def __init__(self) -> None:
        self._chosen: dict[str, tuple[int, ...]] = {}

    def choose(self, pool: str, numbers: tuple[int, ...]) -> None:
        """Set the replicas of a pool."""
        self._chosen[pool] = numbers

    def of(self, pool: str, config: RuntimeConfig) -> tuple[int, ...]:
        """The replicas of a pool, within the bounds of its section."""
        return within(self._chosen.get(pool, ()), config.replicas.min, config.replicas.most)


def within(numbers: tuple[int, ...], least: int, most: int) -> tuple[int, ...]:
    """The first `most` of the numbers, with the lowest free numbers added up to `least`."""
    remaining = sorted(numbers)[:most]
    free = (number for number in count() if number not in remaining)
    return tuple(sorted((*remaining, *islice(free, max(0, least - len(remaining))))))
