"""The systemd unit and the compose project: checked without either, and their commands run."""

import asyncio
import os
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from config.loader import read
from tests.support.postgres import Postgres
from tests.support.processes import HEADRACE, GatewayProcess
from tests.support.redis import RedisServer

DEPLOY = Path(__file__).parents[2] / "deploy"
UNIT = DEPLOY / "systemd" / "headrace.service"
FOLDER = DEPLOY / "compose"
COMPOSE: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]
PEPPER = "0123456789abcdef0123456789abcdef"
VARIABLE = re.compile(r"\$\{(\w+)(?:(:[-?])([^}]*))?\}")


def unit(name: str) -> str:
    """The value of a setting of the unit."""
    (value,) = re.findall(rf"^{name}=(.*)$", UNIT.read_text(), re.MULTILINE)
    return str(value)


def test_systemd_accepts_the_unit_and_finds_little_exposed(tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not installed")
    copy = tmp_path / UNIT.name
    copy.write_text(UNIT.read_text().replace("/opt/headrace/bin/headrace", "/bin/true"))
    verified = subprocess.run([program, "verify", str(copy)], capture_output=True, text=True)
    assert (verified.returncode, verified.stderr) == (0, "")
    judged = [program, "security", "--offline=true", "--threshold=20", str(copy)]
    done = subprocess.run(judged, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_the_unit_stops_after_the_drain_and_has_the_memory_of_the_default() -> None:
    config = read(Path("config/headrace.yaml")).config
    assert config is not None
    assert float(unit("TimeoutStopSec")) > config.drain + 10
    assert unit("MemoryMax") == f"{(config.http.held_by_all + 256 * 2**20) // 2**20}M"
    assert unit("KillMode") == "mixed"


async def test_the_commands_of_the_unit_start_reload_and_stop_a_gateway(tmp_path: Path) -> None:
    file = tmp_path / "headrace.yaml"
    file.write_text(
        yaml.safe_dump(
            {
                "version": 1,
                "listen": {"http": "127.0.0.1:0", "admin": "127.0.0.1:0"},
                "pools": [{"name": "a", "endpoints": ["http://127.0.0.1:9"]}],
                "models": [{"name": "a", "routes": [{"to": "a"}]}],
                "tenants": [{"name": "a", "models": ["*"]}],
            }
        )
    )
    commands = {name: _command(unit(name), file) for name in ("ExecStartPre", "ExecStart")}
    await _run(commands["ExecStartPre"], tmp_path, {})
    gateway = await _started(commands["ExecStart"], file, tmp_path, {})
    try:
        await _is_alive(gateway)
        program, number, _ = unit("ExecReload").split()
        assert (program, number) == ("/bin/kill", "-HUP")
        file.write_text(file.read_text().replace("name: a\n", "name: b\n"))
        gateway.process.send_signal(signal.SIGHUP)
        await gateway.printed("configuration")
        await _is_alive(gateway)
    finally:
        assert await gateway.stop() == 0, gateway.output


def _command(line: str, file: Path) -> list[str]:
    program, *arguments = shlex.split(line)
    assert program == "/opt/headrace/bin/headrace"
    return [*HEADRACE, *(each.replace("/etc/headrace/headrace.yaml", str(file)) for each in arguments)]


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path.cwd())}


async def _run(command: list[str], folder: Path, variables: dict[str, str]) -> str:
    """The output of a command that succeeds."""
    environment = {**_environment(), **variables}

    def run() -> "subprocess.CompletedProcess[str]":
        return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)

    done = await asyncio.to_thread(run)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


async def _started(command: list[str], file: Path, folder: Path, variables: dict[str, str]) -> GatewayProcess:
    process = await asyncio.create_subprocess_exec(
        *command, stderr=asyncio.subprocess.PIPE, cwd=folder, env={**_environment(), **variables}
    )
    gateway = GatewayProcess(process, file)
    await gateway.listens()
    return gateway


async def _is_alive(gateway: GatewayProcess) -> None:
    async with aiohttp.ClientSession() as http, http.get(f"{gateway.admin}/livez") as response:
        assert response.status == 200


def test_every_file_service_and_variable_of_the_compose_project_exists() -> None:
    assert COMPOSE.keys() <= {"name", "x-headrace", "services", "volumes"}
    example = {line.partition("=")[0] for line in (FOLDER / "environment.example").read_text().splitlines()}
    for name, service in SERVICES.items():
        assert service.get("depends_on", {}).keys() <= SERVICES.keys(), name
        for needed, how in service.get("depends_on", {}).items():
            assert ("healthcheck" in SERVICES[needed]) == (how["condition"] == "service_healthy")
        for volume in service.get("volumes", ()):
            source = volume.partition(":")[0]
            assert (FOLDER / source).exists() if source.startswith(".") else source in COMPOSE["volumes"], volume
        for variable, kind, _ in VARIABLE.findall(yaml.safe_dump(service)):
            assert kind == ":-" or variable in example, variable
    build = SERVICES["headrace"]["build"]
    assert (FOLDER / build["context"] / build["dockerfile"]).exists()
    assert SERVICES["headrace"]["image"] == SERVICES["migrate"]["image"] == "headrace:0.1.0"
    scraped = yaml.safe_load((FOLDER / "prometheus.yaml").read_text())["scrape_configs"]
    assert scraped[0]["static_configs"] == [{"targets": ["headrace:8082"]}]


def test_the_compose_file_of_the_gateway_passes_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in _variables("postgresql://headrace@postgres/headrace", "redis://redis").items():
        monkeypatch.setenv(name, value)
    reading = read(FOLDER / "headrace.yaml")
    assert (reading.problems, reading.warnings) == ((), ())
    assert reading.config is not None
    assert SERVICES["headrace"]["mem_limit"] == "1g"
    assert reading.config.workers == 1
    assert reading.config.http.held_by_all + 256 * 2**20 <= 2**30
    assert int(SERVICES["headrace"]["stop_grace_period"].removesuffix("s")) > reading.config.drain


def _variables(database: str, redis: str) -> dict[str, str]:
    values = {"DATABASE": database, "REDIS": redis, "PEPPER": PEPPER, "MODEL_URL": "http://127.0.0.1:9"}
    assert values.keys() == SERVICES["headrace"]["environment"].keys()
    return values


@pytest.fixture
def postgres() -> Iterator[Postgres]:
    server = Postgres()
    server.start()
    yield server
    server.remove()


async def test_the_commands_of_the_compose_project_serve_with_a_role_for_rows(
    postgres: Postgres, tmp_path: Path
) -> None:
    owner = postgres.database()
    postgres.execute(owner, "CREATE ROLE gateway LOGIN")
    redis = RedisServer(tmp_path)
    await redis.start()
    variables = _variables(owner.replace("headrace@", "gateway@"), redis.url) | {"OWNER": owner}
    file = tmp_path / "headrace.yaml"
    file.write_text((FOLDER / "headrace.yaml").read_text().replace("0.0.0.0:8080", "127.0.0.1:0"))
    file.write_text(file.read_text().replace("0.0.0.0:8082", "127.0.0.1:0"))
    migrate, serve = (
        [*HEADRACE, *(each.replace("/etc/headrace/headrace.yaml", str(file)) for each in SERVICES[name]["command"])]
        for name in ("migrate", "headrace")
    )
    assert migrate[-2:] == ["--role", "headrace"]
    await _run([*migrate[:-1], "gateway"], tmp_path, variables)  # the name of the role here
    gateway = await _started(serve, file, tmp_path, variables)
    try:
        await _is_alive(gateway)
        keys = [*HEADRACE, "keys", "create", "--tenant", "apps", "--config", str(file)]
        key = await _run(keys, tmp_path, variables)
        headers = {"authorization": f"Bearer {key.strip()}"}
        async with asyncio.timeout(300), aiohttp.ClientSession(headers=headers) as http:
            while (await http.get(f"{gateway.url}/v1/models")).status != 200:
                await asyncio.sleep(0.1)
    finally:
        assert await gateway.stop() == 0, gateway.output
        redis.kill()
    assert not re.search(r"permission denied|must be owner", gateway.output), gateway.output
