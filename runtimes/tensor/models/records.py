"""The state of each model and each of its versions, in service or not; and the models as requests see them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Literal

from adapters.errors import NotFound, Unavailable
from adapters.wire.decoding import whole_number
from adapters.wire.oip.bodies import IndexEntry
from runtimes.tensor.configuration.model_config import ModelConfig
from runtimes.tensor.models.overrides import remove
from runtimes.tensor.models.repository import ModelFolder
from runtimes.tensor.models.served_model import ServedModel
from runtimes.tensor.statistics import ModelStatistics

State = Literal["READY", "UNAVAILABLE", "LOADING", "UNLOADING"]


@dataclass(slots=True, eq=False)
class Source:
    """The source of versions: the files, and the configuration as it was written."""

    folder: ModelFolder
    config: ModelConfig
    digest: str = ""
    """The digest of the load request's files; empty if all are from the repository."""
    temporary: bool = False
    """Whether the files came with the load request, and are removed after their last use."""
    users: int = 0

    def fingerprint(self, number: int) -> str:
        """A digest that changes if answers of this version may change."""
        return self.digest if self.temporary else f"{self.digest} {self.folder.fingerprint(number)}"

    def use(self) -> None:
        self.users += 1

    async def release(self) -> None:
        """Release the source. The last user removes temporary files."""
        self.users -= 1
        if not self.users and self.temporary:
            await asyncio.to_thread(remove, self.folder.path)


@dataclass(slots=True, eq=False)
class VersionRecord:
    """One version. In service while `served` is set; cold when it is loaded again by the next request."""

    number: int
    state: State = "LOADING"
    reason: str = ""
    source: Source | None = None
    config: ModelConfig | None = None
    """Complete after the load."""
    card: Mapping[str, str] = field(default_factory=dict)
    """That of the last load."""
    served: ServedModel | None = None
    cold: bool = False
    warming: asyncio.Task[None] | None = None
    retry_at: float = 0.0
    """Loop time before which a cold version that failed to load is not loaded again."""
    statistics: ModelStatistics = field(default_factory=ModelStatistics)
    memory_bytes: int = 0
    """The memory measured at the last load."""
    loads: int = 0
    failures: int = 0
    retained_until: float = 0.0
    """Loop time until which the version stays loaded if it can."""
    releasing: asyncio.Task[None] | None = None
    """Ends the retention at its time."""

    @property
    def is_retained(self) -> bool:
        """Whether the version stays loaded: no other version replaces it, and others are evicted first."""
        return self.retained_until > asyncio.get_running_loop().time()

    def is_current(self, source: Source) -> bool:
        """Whether a load from this source would change nothing."""
        return (
            self.usable
            and self.source is not None
            and self.number in source.folder.stamps
            and self.source.fingerprint(self.number) == source.fingerprint(self.number)
        )

    def expected_bytes(self, source: Source) -> int:
        """The expected memory: from the configuration, the last load, or the size of its files."""
        if source.config.memory_bytes or self.memory_bytes:
            return source.config.memory_bytes or self.memory_bytes
        copies = sum(group.count * max(1, len(group.gpus)) for group in source.config.instance_groups)
        return source.folder.sizes[self.number] * copies

    def failed(self, reason: str) -> None:
        """Record a failed load. The version in service stays."""
        self.reason = reason
        if not self.usable:
            self.state = "UNAVAILABLE"

    @property
    def usable(self) -> bool:
        """Whether it serves requests, perhaps after a load."""
        return self.served is not None or self.cold


@dataclass(slots=True, eq=False)
class ModelRecord:
    """One model. `source` is the newest source that a version was loaded from."""

    name: str
    source: Source | None = None
    versions: dict[int, VersionRecord] = field(default_factory=dict)
    labels: Mapping[str, int] = field(default_factory=dict)
    retiring: list[ServedModel] = field(default_factory=list)
    """Versions out of service that still have requests or open sequences."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    problem: str = ""
    """The reason for which the model could not be loaded at all."""

    def usable(self) -> Iterator[VersionRecord]:
        return (record for record in self.versions.values() if record.usable)

    @property
    def is_forgotten(self) -> bool:
        """Whether no version of the model is in service, ending or loading."""
        return self.source is None and not any(self.usable()) and not self.retiring and not self.lock.locked()

    @property
    def default(self) -> VersionRecord | None:
        """The version for requests without a version: the highest."""
        return max(self.usable(), key=lambda record: record.number, default=None)

    def find(self, version: str) -> VersionRecord | None:
        """The version by number or label; None if there is no default. Raises `NotFound`."""
        if not version:
            return self.default
        number = self.labels.get(version) or whole_number(version) or 0
        record = self.versions.get(number)
        if record is None:
            names = [*(str(number) for number in sorted(self.versions)), *self.labels]
            raise NotFound(
                f"Request for unknown model: '{self.name}' version {version[:64]} is not found. It has versions"
                f" {', '.join(names) or 'none'}.",
                param="model_version",
            )
        return record

    @property
    def is_divided(self) -> bool:
        """Whether more than one version may have open sequences."""
        return bool(self.retiring) or len(self.versions) > 1

    def others(self, served: ServedModel | None, version: str) -> Iterator[ServedModel]:
        """Other versions that may have the open sequence of a request."""
        in_service = (record.served for record in self.versions.values() if record.served is not None)
        for one in (*self.retiring, *in_service):
            if one is not served and (one.version == version or whole_number(version) is None):
                yield one

    def forget(self, source: Source) -> None:
        """Delete versions that are neither on the disk nor in service."""
        for number, record in tuple(self.versions.items()):
            if record.state == "UNAVAILABLE" and number not in source.folder.stamps:
                del self.versions[number]

    def update_labels(self, labels: Mapping[str, int]) -> None:
        """Set the labels whose versions are usable; the others stay if their old version is usable."""
        answers = {record.number for record in self.usable()}
        old = {label: number for label, number in self.labels.items() if label in labels and number in answers}
        self.labels = {**old, **{label: number for label, number in labels.items() if number in answers}}

    def index(self) -> list[IndexEntry]:
        if not self.versions:
            return [IndexEntry(self.name, "", "UNAVAILABLE", self.problem)] if self.problem else [IndexEntry(self.name)]
        records = (self.versions[number] for number in sorted(self.versions))
        return [IndexEntry(self.name, str(record.number), record.state, record.reason) for record in records]


RETRY_SECONDS = 2.0
"""Seconds until a retry, in the error of requests to a model that is not ready."""


class ModelTable:
    """`leases` has the versions in service: by name and version, label or "" for the default. Blocks for nothing."""

    def __init__(self) -> None:
        self.models: dict[str, ModelRecord] = {}
        self.listed: frozenset[str] | None = None
        """Names of models at the last scan of the repository; None before the first."""
        self.leases: dict[tuple[str, str], ServedModel] = {}

    def model(self, name: str) -> ModelRecord:
        """The record of a model, created on first use."""
        return self.models.setdefault(name, ModelRecord(name))

    def publish(self, model: ModelRecord) -> None:
        """Set the versions that further leases can acquire."""
        for key in [key for key in self.leases if key[0] == model.name]:
            del self.leases[key]
        for record in model.versions.values():
            if record.served is not None:
                self.leases[model.name, str(record.number)] = record.served
        for label, number in model.labels.items():
            if (served := model.versions[number].served) is not None:
                self.leases[model.name, label] = served
        default = model.default
        if default is not None and default.served is not None:
            self.leases[model.name, ""] = default.served

    def find(self, name: str, version: str) -> tuple[ModelRecord, VersionRecord]:
        """The record of a request's model. Raises `NotFound`, or `Unavailable` before the first load."""
        model = self.models.get(name)
        if model is None or not model.versions:
            if model is None and self.listed is None:
                raise unavailable(f"The model `{name[:256]}` is not ready: the repository has not been read yet.")
            if model is None and name not in (self.listed or ()):
                raise NotFound(f"Request for unknown model: '{name[:256]}' is not found", param="model_name")
            error = unavailable(f"The model `{name}` is not ready: {(model and model.problem) or 'it is not loaded'}.")
            if model is not None and model.problem:
                error.retry_after = inf
            raise error
        newest = max(model.versions.values(), key=lambda record: record.number)
        return model, model.find(version) or newest

    def is_ready(self, name: str, version: str = "") -> bool:
        """Whether it serves requests, perhaps after a load. Raises `NotFound`."""
        try:
            return self.find(name, version)[1].usable
        except Unavailable:
            return False

    def is_usable(self, name: str) -> bool:
        """Whether any version of a model serves requests; False for an unknown model."""
        model = self.models.get(name)
        return model is not None and any(model.usable())

    def describe(self, name: str, version: str = "") -> tuple[str, ModelConfig]:
        """The number of a request's version, and its complete configuration. Loads nothing.

        Raises `NotFound` or `Unavailable`.
        """
        _, record = self.find(name, version)
        if not record.usable or record.config is None:
            raise not_ready(name, record)
        return str(record.number), record.config

    def card(self, name: str, version: str = "") -> Mapping[str, str]:
        """The card of a request's version. Raises `NotFound`."""
        return self.find(name, version)[1].card

    def folder_of(self, name: str, version: str) -> Path:
        """The folder of a loaded version. Raises `NotFound` or `Unavailable`."""
        _, record = self.find(name, version)
        if not record.usable or record.source is None:
            raise not_ready(name, record)
        return record.source.folder.version(record.number)

    def versions(self, name: str) -> list[str]:
        """The numbers of the versions that are ready, in order."""
        model = self.models.get(name)
        return [] if model is None else [str(number) for number in sorted(record.number for record in model.usable())]

    def records(self) -> Iterable[tuple[str, VersionRecord]]:
        """Every version with the name of its model, for statistics and metrics."""
        return ((model.name, record) for model in self.models.values() for record in model.versions.values())

    def index(self, *, ready: bool) -> list[IndexEntry]:
        """Every model and each of its versions; with `ready`, only those that are ready."""
        names = sorted({*self.models, *(() if ready else self.listed or ())})
        entries = [entry for name in names for entry in self.models.get(name, ModelRecord(name)).index()]
        return [entry for entry in entries if entry.state == "READY"] if ready else entries


def unavailable(message: str) -> Unavailable:
    """A temporary error: the request can be retried."""
    return Unavailable(message, code="model_not_ready", retry_after=RETRY_SECONDS)


def not_ready(name: str, record: VersionRecord) -> Unavailable:
    """The error with its reason, and with a time to retry unless the model could not be loaded."""
    why = record.reason or record.state.lower()
    error = unavailable(f"The model `{name}` version {record.number} is not ready: {why}.")
    if record.state == "UNAVAILABLE" and not record.cold:
        error.retry_after = inf
    return error
