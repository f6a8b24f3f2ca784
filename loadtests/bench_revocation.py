"""Measures when a revoked key is refused by all workers of a gateway with many keys.

    python -m loadtests.bench_revocation [--keys 100000] [--rounds 50] [--database postgresql://…]

The keys are written through the store's own tables. Half of the revocations come from `headrace keys revoke`, half from
the admin API. Several open connections ask with the revoked key until each has a 401, so that every worker is asked.
The time begins when the revocation is committed, and ends with the last first 401. The last line is one JSON object.
"""

import argparse
import http.client
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path

import psutil
import yaml
from sqlalchemy import insert

from gateway.auth.audit import Actor
from gateway.auth.keys import ApiKey, digest, new_key
from gateway.auth.pepper import load_pepper
from gateway.auth.schema import keys
from gateway.auth.store import KeyStore
from gateway.auth.terminal import settings_of
from loadtests.bench_console import until_open
from loadtests.servers import Launch, StartError, child, environment, free_ports

TENANTS = 100
WORKERS = 2
CONNECTIONS = 12
SETTLE_S = 20.0
IDLE_S = 10.0
PATIENCE_S = 10.0
ACTOR = Actor("bench", "operator")


def configuration(folder: Path, database: str | None) -> Path:
    """The file of the gateway."""
    http_port, admin_port = free_ports(2)
    made = {
        "version": 1,
        "workers": WORKERS,
        "listen": {"http": f"127.0.0.1:{http_port}", "admin": f"127.0.0.1:{admin_port}"},
        "state": {"database": database or f"sqlite:///{folder}/state.db"},
        "auth": {"pepper": f"file:{folder}/pepper"},
        "access_log": {"to": str(folder / "access.log")},
        "pools": [{"name": "main", "endpoints": ["http://127.0.0.1:9"], "protocol": "openai"}],
        "models": [{"name": "chat", "routes": [{"to": "main"}]}],
        "tenants": [{"name": f"tenant-{number}", "models": ["*"]} for number in range(TENANTS)],
    }
    (folder / "pepper").write_text("the pepper of a load test, which is long enough")
    file = folder / "headrace.yaml"
    file.write_text(yaml.safe_dump(made, sort_keys=False))
    return file


def fill(store: KeyStore, count: int) -> list[tuple[str, ApiKey]]:
    """Write so many keys as one change. Returns each with its tenant."""
    made = [(f"tenant-{number % TENANTS}", new_key()) for number in range(count)]
    now = time.time()
    rows = [
        {"id": key.id, "tenant": tenant, "label": "", "hash": digest(store.pepper, key.plaintext).hex(),
         "created_at": now + number / count}
        for number, (tenant, key) in enumerate(made)
    ]  # fmt: skip
    with store._database.change(moves_epoch=True) as connection:
        connection.execute(insert(keys), rows)
    return made


class Doors:
    """Connections to the clients' listener, spread over the workers."""

    def __init__(self, port: int) -> None:
        self._clients = [http.client.HTTPConnection("127.0.0.1", port, timeout=60) for _ in range(CONNECTIONS)]

    def statuses(self, key: ApiKey, clients: Sequence[http.client.HTTPConnection]) -> list[int]:
        """The status of a request with a key on each connection."""
        statuses = []
        for client in clients:
            client.request("GET", "/v1/models", headers={"Authorization": f"Bearer {key.plaintext}"})
            response = client.getresponse()
            response.read()
            statuses.append(response.status)
        return statuses

    def accept(self, key: ApiKey) -> None:
        """Raises `StartError` unless each connection accepts a key."""
        if set(statuses := self.statuses(key, self._clients)) != {200}:
            raise StartError(f"a valid key was answered with {statuses}")

    def until_refused(self, key: ApiKey) -> float:
        """The time at which the last connection refused a key for the first time."""
        waiting, give_up = list(self._clients), time.perf_counter() + PATIENCE_S
        while waiting:
            if time.perf_counter() > give_up:
                raise StartError(f"a revoked key was accepted for {PATIENCE_S} s")
            answers = self.statuses(key, waiting)
            waiting = [client for client, status in zip(waiting, answers, strict=True) if status != 401]
        return time.perf_counter()

    def close(self) -> None:
        """Close the connections."""
        for client in self._clients:
            client.close()


def revoke_by_command(file: Path, key: ApiKey, ends: ExitStack) -> float:
    """Revoke a key. The time at which the command has printed that it is revoked; it may still run."""
    command = [sys.executable, "-m", "gateway", "keys", "revoke", key.id, "--config", str(file)]
    process = ends.enter_context(subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE, text=True))
    assert process.stderr is not None
    line = process.stderr.readline()
    done = time.perf_counter()
    if "is revoked" not in line:
        raise StartError(line + process.stderr.read())
    return done


def revoke_by_api(admin: http.client.HTTPConnection, tenant: str, key: ApiKey) -> float:
    """Revoke a key. The time at which the answer arrived."""
    admin.request("DELETE", f"/admin/tenants/{tenant}/keys/{key.id}")
    response = admin.getresponse()
    body, done = response.read(), time.perf_counter()
    if response.status != 200:
        raise StartError(f"the admin API answered {response.status}: {body[:300]!r}")
    return done


def cpu_of(pid: int) -> float:
    """Seconds of CPU of a process and its children."""
    top = psutil.Process(pid)
    return sum(sum(each.cpu_times()[:2]) for each in (top, *top.children(recursive=True)))


def list_keys(file: Path) -> tuple[float, float]:
    """Seconds until `headrace keys list` prints its first line, and until it ends."""
    command = [sys.executable, "-m", "gateway", "keys", "list", "--config", str(file)]
    begun = time.perf_counter()
    with subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        first = time.perf_counter() - begun
        process.stdout.read()
    return first, time.perf_counter() - begun


def main(argv: Sequence[str] | None = None) -> int:
    """Fill a database, start a gateway on it, and revoke keys."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--database")
    options = parser.parse_args(argv)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-bench-")))
        file = configuration(folder, options.database)
        config = settings_of(file)
        with closing(KeyStore(config.state.database, load_pepper(config))) as store:
            made = fill(store, options.keys)
        launch = Launch([sys.executable, "-m", "gateway", "serve", "--config", str(file)])
        process = stack.enter_context(child("headrace", launch, "0-63", folder))
        admin = stack.enter_context(closing(until_open(config.listen.admin.port, folder)))
        doors = stack.enter_context(closing(Doors(config.listen.http.port)))
        time.sleep(SETTLE_S)
        before = cpu_of(process.pid)
        time.sleep(IDLE_S)
        idle = (cpu_of(process.pid) - before) / IDLE_S * 1000
        figures: dict[str, list[float]] = {"command": [], "api": []}
        for number, (tenant, key) in enumerate(made[: options.rounds]):
            doors.accept(key)
            by_api = number % 2
            with ExitStack() as ends:
                done = revoke_by_api(admin, tenant, key) if by_api else revoke_by_command(file, key, ends)
                figures["api" if by_api else "command"].append((doors.until_refused(key) - done) * 1000)
        first, whole = list_keys(file)
    for way, times in figures.items():
        worst = max(times)
        print(
            f"{way:8} mean {statistics.mean(times):6.1f} ms   p50 {statistics.median(times):6.1f}   worst {worst:6.1f}"
        )
    print(f"idle: {idle:.2f} ms of CPU a second   keys list: first line {first:.2f} s, all {whole:.2f} s")
    print(json.dumps({"keys": options.keys, "ms": figures, "idle_ms": idle, "list_s": [first, whole]}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
