"""The table of all models, for requests."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from pathlib import Path

from adapters.errors import NotFound, Unavailable
from adapters.wire.oip.bodies import IndexEntry
from runtimes.tensor.configuration.model_config import ModelConfig
from runtimes.tensor.models.records import ModelRecord, VersionRecord
from runtimes.tensor.models.served_model import ServedModel

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
