"""Metric families as bytes, for the transfer from a worker to its supervisor. Prometheus' text format has no
exemplars."""

from collections.abc import Iterable, Iterator

import msgspec
from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar, Sample


class _Sample(msgspec.Struct, array_like=True):
    name: str
    labels: dict[str, str]
    value: float
    exemplar: tuple[dict[str, str], float, float | None] | None = None


class _Family(msgspec.Struct, array_like=True):
    name: str
    documentation: str
    type: str
    samples: list[_Sample]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[_Family])


class Families(Collector):
    """A collector of families that have been collected."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = list(families)

    def collect(self) -> Iterator[Metric]:
        yield from self._families


def encode(collector: Collector) -> bytes:
    """Collect and encode."""
    return _encoder.encode([_family(metric) for metric in collector.collect()])


def decode(data: bytes) -> list[Metric]:
    """Decode the result of `encode`."""
    return [_metric(family) for family in _decoder.decode(data)]


def _family(metric: Metric) -> _Family:
    samples = [
        _Sample(sample.name, sample.labels, float(sample.value), _fields(sample.exemplar)) for sample in metric.samples
    ]
    return _Family(metric.name, metric.documentation, metric.type, samples)


def _fields(exemplar: Exemplar | None) -> tuple[dict[str, str], float, float | None] | None:
    if exemplar is None:
        return None
    at = exemplar.timestamp
    return exemplar.labels, exemplar.value, None if at is None else float(at)


def _metric(family: _Family) -> Metric:
    metric = Metric(family.name, family.documentation, family.type)
    metric.samples = [
        Sample(each.name, each.labels, each.value, None, None if each.exemplar is None else Exemplar(*each.exemplar))
        for each in family.samples
    ]
    return metric
