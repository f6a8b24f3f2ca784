"""The source of a model's versions: its folder in the repository, or a load request."""

from __future__ import annotations

import asyncio
import logging

from config.problem import ConfigError
from runtimes.tensor.configuration.reading import Reading, read_model, read_override
from runtimes.tensor.models.records import Source
from runtimes.tensor.models.repository import (
    ModelFolder,
    Override,
    Repository,
    RepositoryError,
    check_name,
    remove,
    unpack,
)

log = logging.getLogger(__name__)


class SourceError(Exception):
    """The configuration is invalid, or no version can be loaded; the message names the change to make."""


async def read_source(repository: Repository, name: str, override: Override | None) -> Source:
    """Read the source of a model. Raises `RepositoryError` for an unknown model, `SourceError` for an invalid model."""
    work = asyncio.ensure_future(asyncio.to_thread(_read, repository, name, override))
    try:
        source, reading = await asyncio.shield(work)
    except asyncio.CancelledError:
        work.add_done_callback(_discard)
        raise
    for warning in reading.warnings:
        log.warning("%s", warning)
    return source


def _discard(work: asyncio.Future[tuple[Source, Reading]]) -> None:
    """Remove the files that a cancelled load wrote."""
    if not work.cancelled() and work.exception() is None and work.result()[0].temporary:
        asyncio.get_running_loop().run_in_executor(None, remove, work.result()[0].folder.path)


def _read(repository: Repository, name: str, override: Override | None) -> tuple[Source, Reading]:
    check_name(name)
    if override is None:
        folder = repository.find(name)
        reading = _reading(folder, None)
        return Source(folder, reading.config), reading
    if not override.files:
        folder = repository.find(name)
        reading = _reading(folder, override)
        return Source(folder, reading.config, override.digest), reading
    if not override.config:
        raise SourceError("files were sent without a configuration: send `config` with them")
    try:
        folder = unpack(name, override)
    except RepositoryError as error:
        raise SourceError(str(error)) from None
    try:
        reading = _reading(folder, override)
    except BaseException:
        remove(folder.path)
        raise
    return Source(folder, reading.config, override.digest, temporary=True), reading


def _reading(folder: ModelFolder, override: Override | None) -> Reading:
    versions = [folder.version(number) for number in folder.versions]
    try:
        if override is not None and override.config:
            return read_override(override.config, folder.name, folder.path, versions)
        return read_model(folder.path, folder.name, versions)
    except ConfigError as error:
        # Clients see the message, and do not see the path of the repository.
        raise SourceError(str(error).replace(f"{folder.path.parent}/", "")) from None
