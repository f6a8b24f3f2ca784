"""The image: its steps run here without a container, and the Dockerfile runs the same steps."""

import asyncio
import json
import re
import subprocess
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.processes import GatewayProcess
from tests.support.read_only import USER, beside, confined

IMAGE = Path("deploy/image")
DOCKERFILE = (IMAGE / "Dockerfile").read_text()
CONFIG = """
version: 1
listen: {http: 127.0.0.1:0, admin: 127.0.0.1:0}
pools: [{name: a, endpoints: ["http://127.0.0.1:9"]}]
models: [{name: a, routes: [{to: a}]}]
tenants: [{name: a, models: ["*"]}]
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that another user may enter."""
    with tempfile.TemporaryDirectory(prefix="headrace-image-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.timeout(900)
async def test_the_steps_build_a_gateway_that_runs_without_root_on_a_read_only_file_system(folder: Path) -> None:
    prefix, config = folder / "prefix", folder / "headrace.yaml"
    config.write_text(CONFIG)
    before = _changes()
    build = [str(IMAGE / "build.sh"), str(prefix), "postgres,redis"]
    done = await asyncio.to_thread(subprocess.run, build, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert _changes() == before, "a build leaves nothing in the checkout"
    _check_the_tree(prefix)

    state, temporary = folder / "state", folder / "temporary"
    variables = {"PATH": f"{prefix}/bin:/usr/bin:/bin", "HOME": str(state), "TMPDIR": str(temporary)}
    command = confined([f"{prefix}/bin/headrace", "serve", "--config", str(config)], [state, temporary], variables)
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    gateway = GatewayProcess(process, config)
    try:
        await gateway.listens()
        assert _user_of(process.pid) == USER
        for path in ("/livez", "/readyz?models=ignored"):
            async with aiohttp.ClientSession() as http, http.get(f"{gateway.admin}{path}") as response:
                assert response.status == 200, (path, await response.text())
        create = [f"{prefix}/bin/headrace", "keys", "create", "--tenant", "a", "--config", str(config)]
        await _issue_a_key(gateway, beside(process.pid, create, variables))
    finally:
        assert await gateway.stop() == 0, gateway.output
    assert (state / ".headrace" / "state.db").stat().st_uid == USER


async def _issue_a_key(gateway: GatewayProcess, command: list[str]) -> None:
    """Run the command in the container, as the chart's notes describe, and wait until its key is accepted."""
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True)
    match = re.search(r"hr-\S+", done.stdout)
    assert match is not None, done.stdout + done.stderr
    headers, url = {"authorization": f"Bearer {match[0]}"}, f"{gateway.url}/v1/models"
    async with asyncio.timeout(300), aiohttp.ClientSession(headers=headers) as http:
        while (await http.get(url)).status != 200:
            await asyncio.sleep(0.1)


def _changes() -> str:
    return subprocess.run(["git", "status", "--porcelain"], capture_output=True, text=True, check=True).stdout


def _check_the_tree(prefix: Path) -> None:
    """Nobody may write, everyone may read, and the packages are those of a slim gateway."""
    for path in prefix.rglob("*"):
        if not path.is_symlink():
            assert not path.stat().st_mode & 0o222, path
            assert path.stat().st_mode & 0o004, path
    (packages,) = prefix.glob("lib/python*/site-packages")
    assert (packages / "psycopg").exists()
    pinned = Path("constraints.txt").read_text().splitlines()
    for each in json.loads((prefix / "packages.json").read_text()):
        name = canonicalize_name(each["name"])
        assert name in ("headrace", "pip", "setuptools") or f"{name}=={each['version']}" in pinned, each
    assert not (packages / "torch").exists()


def _user_of(pid: int) -> int:
    match = re.search(r"^Uid:\t(\d+)\t(\d+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert match is not None
    assert match[1] == match[2]
    return int(match[1])


def instructions(name: str) -> list[str]:
    """The arguments of each instruction of this name."""
    joined = re.sub(r"\\\n", " ", DOCKERFILE)
    return re.findall(rf"^{name} (.*)$", joined, re.MULTILINE)


@pytest.mark.plain
def test_each_target_installs_extras_of_the_distribution_with_the_tested_steps() -> None:
    project: dict[str, Any] = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    builds = [re.fullmatch(r"deploy/image/build.sh /opt/headrace ([\w,]+)", run) for run in instructions("RUN")]
    extras = [set(build[1].split(",")) for build in builds if build]
    assert len(extras) == 4
    for each in extras:
        assert each <= project["optional-dependencies"].keys()
    assert not {"llm", "torch"} & extras[0], "the first is the slim gateway"


@pytest.mark.plain
def test_every_stage_starts_from_the_same_base_and_runs_without_root() -> None:
    assert instructions("ARG")[0] == "PYTHON_IMAGE=python:3.11-slim"
    stages = [re.fullmatch(r"(\S+) AS ([\w-]+)", stage) for stage in instructions("FROM")]
    names = [stage[2] for stage in stages if stage]
    assert len(names) == len(stages)
    assert {stage[1] for stage in stages if stage} <= {"${PYTHON_IMAGE}", *names}
    assert names[-1] == "gateway", "the default target is the last one"
    assert instructions("USER")[-1] == f"{USER}:{USER}"
    for stage in re.split(r"^FROM ", DOCKERFILE, flags=re.MULTILINE)[1:]:
        users = re.findall(r"^USER (\S+)", stage, re.MULTILINE)
        assert users[-1:] in ([], [f"{USER}:{USER}"])


@pytest.mark.plain
def test_every_copied_path_is_in_the_checkout_and_in_the_context() -> None:
    ignored = Path(".dockerignore").read_text().splitlines()
    for line in instructions("COPY"):
        if line.startswith("--from"):
            continue
        for source in line.split()[:-1]:
            assert Path(source).exists(), source
            assert f"!{source}" in ignored, source


@pytest.mark.plain
def test_the_chart_uses_the_tags_of_the_targets() -> None:
    names = (Path("deploy/helm/headrace/templates/_runtime.tpl")).read_text()
    assert '(printf "%s-%s" ($own.tag | default .root.Chart.AppVersion) .runtime.kind)' in names
    targets = {stage.rpartition(" ")[2] for stage in instructions("FROM")}
    assert {"gateway", "llm", "tensor", "torch"} <= targets


@pytest.mark.plain
def test_every_package_of_the_images_and_the_tests_has_one_version_that_the_distribution_accepts() -> None:
    project: dict[str, Any] = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    lines = [line for line in Path("constraints.txt").read_text().splitlines() if not line.startswith("#")]
    pinned = dict(line.split("==") for line in lines)
    assert len(pinned) == len(lines)
    extras = {name for run in instructions("RUN") for name in run.rpartition(" ")[2].split(",") if "build.sh" in run}
    left, read = {"dev", *extras}, set[str]()
    needed = [Requirement(each) for each in project["dependencies"]]
    while left:
        read.add(extra := left.pop())
        for requirement in map(Requirement, project["optional-dependencies"][extra]):
            needed.append(requirement)
            left |= (requirement.extras if requirement.name == "headrace" else set()) - read
    for requirement in needed:
        if requirement.name != "headrace" and (requirement.marker is None or requirement.marker.evaluate()):
            assert pinned[canonicalize_name(requirement.name)] in requirement.specifier, requirement


@pytest.mark.plain
def test_the_image_has_the_version_of_the_distribution() -> None:
    project: dict[str, Any] = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    assert f"VERSION={project['version']}" in instructions("ARG")
    assert f"image: headrace:{project['version']}" in Path("deploy/compose/compose.yaml").read_text()
