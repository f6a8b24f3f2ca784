"""The parts of the fleet's soak: its configuration, its kills, its verdict and its report."""

import asyncio
import random
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from config.loader import load
from loadtests.fleet.chaos import kill_and_restart
from loadtests.fleet.configuration import configuration
from loadtests.fleet.member import Member, System
from loadtests.fleet.systems import SYSTEMS
from loadtests.fleet.work import ADDERS
from loadtests.servers import Launch, free_ports
from loadtests.soaks.fleet import report
from loadtests.tensors.targets import is_ready

pytestmark = pytest.mark.plain


def files(folder: Path, ports: Sequence[int], installed: Path) -> Launch:
    return Launch([sys.executable, "-m", "http.server", str(ports[0]), "--bind", "127.0.0.1", "-d", str(folder)])


def member(folder: Path, name: str = "files", ports: int = 1) -> Member:
    return Member(System(name, lambda: folder, files, "/", ports), folder, free_ports(ports))


def test_every_system_has_a_pool_that_the_gateway_takes(tmp_path: Path) -> None:
    members = {system.name: member(tmp_path, system.name, system.ports) for system in SYSTEMS}
    file = tmp_path / "headrace.yaml"
    file.write_text(yaml.safe_dump(configuration(members, tmp_path, *free_ports(2))))
    loaded = load(file)
    assert {f"add-{name}" for name in ADDERS} < {model.name for model in loaded.models}
    used = {endpoint.url for pool in loaded.pools for endpoint in pool.endpoints}
    assert all(any(one.url(port) in used for port in range(len(one.ports))) for one in members.values())


@pytest.mark.benchmarks
async def test_a_killed_server_restarts_at_its_address(tmp_path: Path) -> None:
    one = member(tmp_path)
    one.start()
    try:
        await one.until_ready()
        chaos = asyncio.create_task(kill_and_restart([one], 0.01, random.Random(1), away=(0.0, 0.01)))
        async with asyncio.timeout(300):
            while one.kills < 2:
                await asyncio.sleep(0.02)
        chaos.cancel()
        await asyncio.wait([chaos])
        await asyncio.to_thread(one.kill)
        one.start()
        await one.until_ready()
        assert await asyncio.to_thread(is_ready, one.ports[0], "/")
    finally:
        one.kill()
    assert not await asyncio.to_thread(is_ready, one.ports[0], "/")


def test_the_report_has_requests_and_refusals() -> None:
    rows = [{"Name": "chat", "Request Count": "10", "Failure Count": "1", "50%": "20", "99%": "90"}]
    failures = [{"Name": "chat", "Error": "refused 503", "Occurrences": "1"}]
    markdown = report(rows, failures, {"kills": {"triton": 2}})
    assert "| chat | 10 | 1 | 20 ms | 90 ms |" in markdown
    assert "| chat | refused 503 | 1 |" in markdown
    assert "- kills: {'triton': 2}" in markdown
