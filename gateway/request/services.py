"""The objects that all exchanges of a process share."""

from collections.abc import Callable
from random import Random

from gateway.limits.ledger import Ledger
from gateway.traffic.sequences import Sequences
from policies.limits.price import DeviceTime


class Services:
    """`clock` returns monotonic seconds; `wall` returns Unix seconds, for rules by time of day."""

    def __init__(self, ledger: Ledger, rng: Random, clock: Callable[[], float], wall: Callable[[], float]) -> None:
        self.ledger = ledger
        self.rng = rng
        self.clock = clock
        self.wall = wall
        self.sequences = Sequences(clock)
        self.device_time = DeviceTime()
