"""A real Prometheus of the test's own, which scrapes addresses of the test."""

import asyncio
import re
import subprocess
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from tests.support.debian import binary

START_SECONDS = 120.0


class Prometheus:
    """A running server, by its API."""

    def __init__(self, url: str, http: aiohttp.ClientSession) -> None:
        self.url = url
        self._http = http

    async def query(self, expression: str) -> list[dict[str, Any]]:
        """The samples of an expression now, without those that are not a number."""
        data = await self._data("query", query=expression)
        assert data["resultType"] == "vector", data
        return [sample for sample in data["result"] if sample["value"][1] != "NaN"]

    async def exemplars(self, expression: str, begin: float) -> list[dict[str, Any]]:
        """The exemplars of an expression from a time in Unix seconds until now."""
        end = str(time.time() + 60)
        all_series = await self._data("query_exemplars", query=expression, start=str(begin), end=end)
        return [exemplar for series in all_series for exemplar in series["exemplars"]]

    async def rules(self) -> list[dict[str, Any]]:
        return [rule for group in (await self._data("rules"))["groups"] for rule in group["rules"]]

    async def _data(self, resource: str, **parameters: str) -> Any:
        async with self._http.get(f"{self.url}/api/v1/{resource}", params=parameters) as response:
            reply = await response.json()
        assert reply["status"] == "success", (parameters, reply)
        return reply["data"]


@asynccontextmanager
async def prometheus(folder: Path, jobs: Mapping[str, str], rules: Path) -> AsyncIterator[Prometheus]:
    """Start one that scrapes `HOST:PORT` of each job every second."""
    scraped = [{"job_name": name, "static_configs": [{"targets": [address]}]} for name, address in jobs.items()]
    settings = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(rules)],
        "scrape_configs": scraped,
    }
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(settings))
    command = [
        binary("prometheus", "prometheus"),
        f"--config.file={folder}/prometheus.yaml",
        f"--storage.tsdb.path={folder}/prometheus",
        "--web.listen-address=127.0.0.1:0",
        "--enable-feature=exemplar-storage",
    ]
    log = folder / "prometheus.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)  # noqa: ASYNC220
    try:
        async with asyncio.timeout(START_SECONDS), aiohttp.ClientSession() as http:
            while (match := re.search(r"Listening on.*?address=\S*?:(\d+)", log.read_text())) is None:
                assert process.poll() is None, log.read_text()
                await asyncio.sleep(0.05)
        async with aiohttp.ClientSession() as http:
            yield Prometheus(f"http://127.0.0.1:{match[1]}", http)
    finally:
        process.terminate()
        process.wait(60)
