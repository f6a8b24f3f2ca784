"""Endpoints from a file with ``endpoints:``, as in a pool."""

import asyncio
from collections import Counter
from pathlib import Path

from pydantic import ValidationError

from config.document import parse
from config.problem import ConfigError
from config.schema.config import EndpointConfig
from config.schema.section import Section
from gateway.traffic.discovery.target import DiscoveredEndpoint, DiscoveryError, Report

LOOK_SECONDS = 0.5

Stamp = tuple[int, int, int]


class _Listed(Section):
    endpoints: tuple[EndpointConfig, ...]


class EndpointFile:
    """Reads the file twice a second. A file with any error changes nothing.

    Polling detects changes on network mounts and through the symbolic links of Kubernetes' volumes too. After the first
    read, content is accepted when two reads agree, so never while it is being written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: Stamp | None = None

    async def follow(self, report: Report) -> None:
        current: Stamp | None = None
        while True:
            stamp = await asyncio.to_thread(self._stamp)
            settled = self._seen in (None, stamp)
            self._seen = stamp
            if settled and stamp != current:
                report(await asyncio.to_thread(self._read))
                current = stamp
            await asyncio.sleep(LOOK_SECONDS)

    def _stamp(self) -> Stamp:
        try:
            status = self._path.stat()
        except (OSError, ValueError) as error:  # ValueError: a NUL in the name
            reason = error.strerror if isinstance(error, OSError) else "not a file name"
            raise DiscoveryError(f"{self._path} cannot be read: {reason}") from None
        return status.st_mtime_ns, status.st_size, status.st_ino

    def _read(self) -> list[DiscoveredEndpoint]:
        try:
            doc = parse(self._path)
            if doc.problems:
                raise ConfigError(doc.problems)
            listed = _Listed.model_validate(doc.data, strict=True)
        except ConfigError as error:
            raise DiscoveryError(str(error)) from None
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            raise DiscoveryError(str(doc.problem(tuple(first["loc"]), first["msg"]))) from None
        counts = Counter(endpoint.url for endpoint in listed.endpoints)
        if twice := [url for url, count in counts.items() if count > 1]:
            raise DiscoveryError(f"{self._path}: {twice[0]} is given twice")
        return [DiscoveredEndpoint.of(endpoint) for endpoint in listed.endpoints]
