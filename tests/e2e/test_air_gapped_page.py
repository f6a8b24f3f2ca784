"""docs/air-gapped.md: an installation in a network namespace without a network, and a gateway that calls no one."""

import re
import shutil
import sys
from pathlib import Path

import pytest
import yaml

from loadtests.peers.networks import prefix
from tests.support.clones import environment, sources
from tests.support.debian import binary
from tests.support.page_commands import section
from tests.support.page_reader import Reader
from tests.support.processes import minimal, starting_gateway
from tests.support.upstreams import upstream

PAGE = Path("docs/air-gapped.md")


@pytest.mark.timeout(1800)
async def test_the_page_installs_without_a_network(tmp_path: Path) -> None:
    clone, target = sources(tmp_path / "clone"), tmp_path / "target"
    target.mkdir()
    collecting, _, installing = section(PAGE, "# Install without internet").partition("Carry `headrace.tar` over.")
    connected = Reader(clone, environment(clone), {"python3": sys.executable})
    await connected.follow(collecting)
    shutil.move(clone / "headrace.tar", target)
    stand_ins = {"/opt/headrace": str(tmp_path / "opt"), "python3": sys.executable}
    reader = Reader(target, environment(target), stand_ins, within=prefix())
    try:
        await reader.follow(installing.partition("\n## ")[0])
        await reader.follow(section(PAGE, "## Upgrade"))
    finally:
        await reader.aclose()
        shutil.rmtree(tmp_path / "opt", ignore_errors=True)
    assert len(connected.typed) == 2
    assert len(reader.typed) == 6


_CONNECTED = re.compile(r'connect\(\d+, \{sa_family=AF_INET6?, .*?inet_(?:addr\(|pton\(AF_INET6, )"([^"]+)"')


async def test_a_gateway_connects_to_the_hosts_of_its_file_only(tmp_path: Path) -> None:
    trace = tmp_path / "connections"
    behind = [binary("strace", "strace"), "-D", "-f", "-qq", "-e", "trace=connect", "-o", str(trace)]
    async with upstream() as up:
        settings = minimal(up.url, usage={}, requests={}, stored_responses={"store": "default"})
        async with starting_gateway(tmp_path, settings, behind=behind) as g:
            await g.listens()
            assert (await g.chat(await g.key()))[0] == 200
    addresses = set(_CONNECTED.findall(trace.read_text()))
    assert addresses == {"127.0.0.1"}, "the upstream, on loopback"
    assert yaml.safe_load(g.config.read_text())["pools"][0]["endpoints"] == [up.url]
