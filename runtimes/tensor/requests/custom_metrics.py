"""Metrics that models define. Families are shared by name, values by their labels, and both exist while they are
referenced."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

MAX_FAMILIES: Final = 256
MAX_VALUES: Final = 4096
"""Values of one family."""
MAX_HANDLES: Final = 1 << 16
"""References of one process."""
_NAME: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_OWN: Final = ("nv_", "headrace_")
"""Prefixes of the server's own metrics."""
_KINDS: Final = ("counter", "gauge", "histogram")
Labels = tuple[tuple[str, str], ...]


class MetricError(Exception):
    """An operation that a metric does not support."""


@dataclass(slots=True, eq=False)
class MetricValue:
    """One value, or the sum and the bucket counts of a histogram."""

    kind: str
    bounds: tuple[float, ...] = ()
    value: float = 0.0
    counts: list[int] = field(default_factory=list)
    references: int = 0

    def change(self, operation: str, value: float) -> None:
        """Raises `MetricError`."""
        if operation == "increment" and (self.kind == "gauge" or (self.kind == "counter" and value >= 0)):
            self.value += value
        elif operation == "set" and self.kind == "gauge":
            self.value = value
        elif operation == "observe" and self.kind == "histogram":
            self.value += value
            self.counts[bisect_left(self.bounds, value)] += 1
        elif operation == "increment" and self.kind == "counter":
            raise MetricError("TRITONSERVER_METRIC_KIND_COUNTER can only be incremented monotonically by non-negative"
                              " values.")  # fmt: skip
        else:
            raise MetricError(f"Unsupported operation `{operation}` for a metric of kind {self.kind}.")


@dataclass(slots=True, eq=False)
class CustomFamily:
    name: str
    description: str
    kind: str
    values: dict[Labels, MetricValue] = field(default_factory=dict)
    references: int = 0


class CustomMetrics:
    """The custom metrics of all models of a server."""

    def __init__(self) -> None:
        self._families: dict[str, CustomFamily] = {}

    def __iter__(self) -> Iterator[CustomFamily]:
        return iter(list(self._families.values()))

    def holder(self) -> MetricHolder:
        """The references of a new process."""
        return MetricHolder(self)

    def family(self, name: str, description: str, kind: str) -> CustomFamily:
        """Reference a family, created on first use with its first description. Raises `MetricError`."""
        if kind not in _KINDS or not _NAME.fullmatch(name) or name.startswith(_OWN):
            raise MetricError(f"`{name[:64]}` is not a name of a metric that a model can define")
        family = self._families.get(name)
        if family is None:
            if len(self._families) >= MAX_FAMILIES:
                raise MetricError(f"models have defined {MAX_FAMILIES} metric families, and no more are possible")
            family = self._families[name] = CustomFamily(name, " ".join(description.split())[:512], kind)
        elif family.kind != kind:
            raise MetricError(f"Metric name `{name}` is used by a {family.kind}, and cannot be a {kind}.")
        family.references += 1
        return family

    def release(self, family: CustomFamily) -> None:
        family.references -= 1
        self.drop_unused(family)

    def drop_unused(self, family: CustomFamily) -> None:
        for labels in [labels for labels, value in family.values.items() if not value.references]:
            del family.values[labels]
        if not family.references and not family.values:
            self._families.pop(family.name, None)


@dataclass(slots=True, eq=False)
class _Reference:
    """A reference of a model to a family or, with a value, to one of its values."""

    family: CustomFamily
    value: MetricValue | None = None
    owner: int = 0
    """The handle of a value's family."""


class MetricHolder:
    """References of one process, by handle."""

    def __init__(self, metrics: CustomMetrics) -> None:
        self._metrics = metrics
        self._references: dict[int, _Reference] = {}
        self._handles = 0
        self._operations: dict[str, Callable[..., Any]] = {
            "metric family": self._family,
            "metric": self._metric,
            "metric value": self._value,
            "change metric": self._change,
            "release metric": self._release,
            "release metric family": self._release,
        }

    def has(self, operation: str) -> bool:
        return operation in self._operations

    def answer(self, operation: str, arguments: Mapping[str, Any]) -> Any:
        """Raises `MetricError`."""
        return self._operations[operation](**arguments)

    def close(self) -> None:
        """Release the references of a process that has ended."""
        for handle in list(self._references):
            self._release(handle)

    def _add(self, reference: _Reference) -> int:
        self._handles += 1
        self._references[self._handles] = reference
        return self._handles

    def _family(self, name: str, description: str, kind: str) -> int:
        self._check_room()
        return self._add(_Reference(self._metrics.family(name, description, kind)))

    def _check_room(self) -> None:
        if len(self._references) >= MAX_HANDLES:
            raise MetricError(f"the model refers to {MAX_HANDLES} metrics, and no more are possible")

    def _metric(self, family: int, labels: Mapping[str, str], buckets: Sequence[float] | None) -> int:
        self._check_room()
        owner = self._references[family].family
        if any(not _LABEL.fullmatch(name) for name in labels):
            raise MetricError("a label's name has letters, digits and underscores only")
        key = tuple(sorted(labels.items()))
        value = owner.values.get(key)
        if value is None:
            value = _value_of(owner.kind, buckets)
            if len(owner.values) >= MAX_VALUES:
                raise MetricError(f"metric `{owner.name}` has {MAX_VALUES} values, and no more are possible")
            owner.values[key] = value
        value.references += 1
        return self._add(_Reference(owner, value, family))

    def _state(self, metric: int) -> MetricValue:
        reference = self._references[metric]
        if reference.owner not in self._references:
            raise MetricError(
                "Invalid metric operation as the corresponding 'MetricFamily' has been deleted. The 'MetricFamily'"
                " object should be deleted AFTER its corresponding 'Metric' objects have been deleted."
            )
        assert reference.value is not None
        return reference.value

    def _value(self, metric: int) -> float:
        value = self._state(metric)
        if value.kind == "histogram":
            raise MetricError("Unsupported operation `value` for a metric of kind histogram.")
        return value.value

    def _change(self, metric: int, change: str, value: float) -> None:
        self._state(metric).change(change, value)

    def _release(self, handle: int) -> None:
        reference = self._references.pop(handle, None)
        if reference is None:
            return
        if reference.value is None:
            self._metrics.release(reference.family)
        else:
            reference.value.references -= 1
            self._metrics.drop_unused(reference.family)


def _value_of(kind: str, buckets: Sequence[float] | None) -> MetricValue:
    if kind != "histogram":
        if buckets is not None:
            raise MetricError(f"buckets are for histograms, and the metric is a {kind}")
        return MetricValue(kind)
    if buckets is None:
        raise MetricError("a histogram needs buckets")
    if any(low >= high for low, high in pairwise(buckets)):
        raise MetricError("buckets must be in ascending order, each once")
    return MetricValue(kind, tuple(buckets), counts=[0] * (len(buckets) + 1))
