"""Endpoints and requests as far as a picker sees them."""

from collections.abc import Mapping
from typing import NamedTuple

from policies.balancing.signals import PeakEwma, Signal


class Candidate:
    def __init__(self, place: str, weight: float = 1.0, in_flight: int = 0, zone: str | None = None) -> None:
        self.place = place
        self.share = 1.0
        self.weight = weight
        self.in_flight = in_flight
        self.latency = PeakEwma()
        self.signal = Signal()
        self.zone = zone

    def __repr__(self) -> str:
        return self.place

    def share_left(self, model: str, now: float) -> float:
        return self.share


def candidates(*weights: float) -> list[Candidate]:
    return [Candidate(f"e{i}", weight) for i, weight in enumerate(weights)]


class PickRequest(NamedTuple):
    tenant: str = "acme"
    key: str = "k1"
    user: str | None = None
    model: str = "chat"
    headers: Mapping[str, str] = {}
    prompt: memoryview = memoryview(b"")


ANYONE = PickRequest()
