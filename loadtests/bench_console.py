"""Measures the lists of the console over the admin API of a real gateway with many stored requests.

    python -m loadtests.bench_console [--rows 1000000] [--days 7] [--usage 1000000] [--database postgresql://…]

Beside the requests there are audit entries, batches, keys, the minutes of the live screen, and rows of usage: those of
a company with many tenants, keys and models in each of 720 hours. Figures are milliseconds of a whole exchange over
loopback, with the connection open. The last line is one JSON object.
"""

import argparse
import http.client
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import yaml
from sqlalchemy import insert

from config.schema.config import Config
from gateway.auth.audit import Act, Actor
from gateway.auth.pepper import load_pepper
from gateway.auth.store import KeyStore
from gateway.auth.terminal import settings_of
from gateway.features.batches import schema
from gateway.features.batches.rows import BatchHolder, BatchSpec, encode
from gateway.features.batches.store import BatchStore
from gateway.features.journal.folders import requests_folder
from gateway.features.live.store import LiveStore
from gateway.features.requests.days import open_days
from gateway.features.requests.store import RequestStore
from gateway.features.usage.labels import COUNTERS, HOUR, UsageLabels, UsageRow
from gateway.features.usage.rows import hour_values
from gateway.features.usage.store import UsageStore, write_hours
from gateway.telemetry.figures import Dimension, FigureSet
from loadtests.bench_requests import fill, timed
from loadtests.servers import Launch, StartError, child, free_port, log_tail
from policies.batches.states import BatchProgress

TENANTS = 200
KEYS = 1000
ENTRIES = 20_000
BATCHES = 20_000
PAGES = 40
COMPANY_HOURS = 720
REPLICAS = 3
ACTOR = Actor("bench", "operator")


class Listing(NamedTuple):
    """A list: its path, and the parameter of the following page with the field of the last row, or with `next`."""

    name: str
    path: str
    following: str = ""
    rows: str = ""
    field: str = ""


def listings(id_: str, day: str) -> list[Listing]:
    """Every list of the console. `id_` is that of a request, `day` the first one of usage."""
    pages = ("after", "requests", "")
    return [
        Listing("requests", "/admin/requests?limit=50", *pages),
        Listing("requests with totals", "/admin/requests?limit=50&totals=true"),
        Listing("requests of a large tenant", "/admin/requests?limit=50&tenant=tenant-0", *pages),
        Listing("the same with totals", "/admin/requests?limit=50&tenant=tenant-0&totals=true"),
        Listing("requests of a model", "/admin/requests?limit=50&model=model-3&totals=true"),
        Listing("failed requests", "/admin/requests?limit=50&error=*&totals=true"),
        Listing("requests of an end user", "/admin/requests?limit=50&user=user-0&totals=true"),
        Listing("one request", f"/admin/requests/{quote(id_, safe='')}"),
        Listing("audit log", "/admin/audit?limit=100", "before", "entries", "seq"),
        Listing("batches", "/admin/batches?limit=50", "after", "batches", ""),
        Listing("failed batches of a tenant", "/admin/batches?limit=50&tenant=tenant-7&status=failed"),
        Listing("tenants", "/admin/tenants"),
        Listing("a tenant", "/admin/tenants/tenant-0"),
        Listing(f"keys of a tenant with {KEYS}", "/admin/tenants/tenant-0/keys?limit=50", "after", "keys", ""),
        Listing("usage by day", f"/admin/usage?tenant=tenant-0&from={day}&by=tenant&per=day"),
        Listing("usage by model", f"/admin/usage?tenant=tenant-0&from={day}&by=model&limit=200"),
        Listing("usage of the company", "/admin/usage/overview?by=tenant"),
        Listing("the same by key", "/admin/usage/overview?by=key"),
        Listing("the same of 30 days by model", f"/admin/usage/overview?by=model&from={month_ago()}"),
        Listing("a tenant's by model", "/admin/usage/overview?by=model&tenant=tenant-0"),
        Listing("a model's by tenant", "/admin/usage/overview?by=tenant&model=model-3"),
        Listing("live: six hours", "/console/api/live/history"),
        Listing("live: six hours by tenant", "/console/api/live/history?by=tenants"),
        Listing("versions of the file", "/admin/config/history?limit=50"),
        Listing("pools", "/admin/pools"),
        Listing("pipelines", "/admin/pipelines"),
        Listing("rollouts", "/admin/rollouts"),
    ]


def month_ago() -> str:
    """The day 30 days ago."""
    return time.strftime("%Y-%m-%d", time.gmtime(time.time() - 30 * 24 * HOUR))


def configuration(folder: Path, database: str | None) -> Path:
    """The file of the gateway."""
    made = {
        "version": 1,
        "listen": {"http": f"127.0.0.1:{free_port()}", "admin": f"127.0.0.1:{free_port()}"},
        "state": {"database": database or f"sqlite:///{folder}/state.db"},
        "access_log": {"to": str(folder / "access.log")},
        "requests": {"retention": "3650d", "folder": str(folder / "requests")},
        "usage": {"users": 100},  # so that end users are searched
        "batches": {"storage": f"file:{folder}/files"},
        "pools": [{"name": "main", "endpoints": ["http://127.0.0.1:9"], "protocol": "openai"}],
        "models": [{"name": f"model-{number}", "routes": [{"to": "main"}]} for number in range(12)],
        "tenants": [{"name": f"tenant-{number}", "models": ["*"]} for number in range(TENANTS)],
    }
    file = folder / "headrace.yaml"
    file.write_text(yaml.safe_dump(made, sort_keys=False))
    return file


def fill_all(config: Config, rows: int, days: int, used: int) -> None:
    """Fill every table through the gateway's own stores."""
    folder = requests_folder(config)
    assert folder is not None
    pepper, url, rng = load_pepper(config), config.state.database, random.Random(3)
    with closing(RequestStore(open_days(url, folder))) as requests:
        fill(requests, rows, days)
    with closing(KeyStore(url, pepper)) as keys:
        for number in range(KEYS):
            keys.create("tenant-0", f"application {number}", by=ACTOR, now=time.time())
        acts = [(time.time(), Act(ACTOR, "key.create", f"key-{number}")) for number in range(ENTRIES)]
        keys.note(acts)
    with closing(BatchStore(url, pepper)) as batches, batches.database.change(moves_epoch=False) as connection:
        connection.execute(insert(schema.batches), [batch_row(number, rng) for number in range(BATCHES)])
    with closing(UsageStore(url, pepper)) as usage:
        for rows_of_hour in (*batched(usage_rows(days)), *company_rows(used, rng)):
            with usage._database.change(moves_epoch=False) as connection:
                write_hours(connection, rows_of_hour)
        usage.sum_days(0, "")
    with closing(LiveStore(url, pepper)) as live:
        for replica in range(REPLICAS):
            live.add_minutes(f"bench-{replica}", live_minutes(), 0)


def batch_row(number: int, rng: random.Random) -> dict[str, Any]:
    """A batch that has ended."""
    now, tenant = time.time(), f"tenant-{rng.randrange(TENANTS)}"
    spec = BatchSpec(
        f"batch_{number:032x}", BatchHolder(tenant, "k", [], {}), "openai", "/v1/chat/completions", "file-i", "file-o",
        "file-e", "24h", now, now + 86400, None, 86400.0,
    )  # fmt: skip
    status: Any = "completed" if rng.random() < 0.99 else "failed"
    progress = BatchProgress(status, 1000, 0, {"validating": now, status: now}, succeeded=1000)
    return {
        "id": spec.id, "tenant": tenant, "api": spec.api, "status": status, "tokens": 0, "expires_at": spec.expires_at,
        "delete_at": now + 1e7, "spec": encode(spec), "progress": encode(progress),
    }  # fmt: skip


def usage_rows(days: int) -> Iterator[dict[str, Any]]:
    """The usage of one tenant with many keys and all models."""
    now = int(time.time()) // HOUR
    for hour in range(now - 24 * days, now):
        for slot in range(96):
            labels = UsageLabels("tenant-0", f"key{slot % 8}", f"model-{slot // 8}", "", "usd")
            yield hour_values(f"bench-{hour}", hour, UsageRow(slot, labels, (1,) * len(COUNTERS)))


def batched(rows: Iterator[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Rows in parts of one transaction."""
    while part := list(islice(rows, 5000)):
        yield part


def company_rows(used: int, rng: random.Random) -> Iterator[list[dict[str, Any]]]:
    """The usage of all tenants: so many rows in the last 720 hours, each of another key and model."""
    now = int(time.time()) // HOUR
    combinations = [(tenant, key, model) for tenant in range(TENANTS) for key in range(5) for model in range(12)]
    for hour in range(now - COMPANY_HOURS, now):
        chosen = rng.sample(combinations, used // COMPANY_HOURS)
        yield [
            hour_values(
                f"company-{hour}",
                hour,
                UsageRow(slot, UsageLabels(f"tenant-{t}", f"key{t}-{k}", f"model-{m}", "", "usd"), (10**9,) + (1,) * 7),
            )
            for slot, (t, k, m) in enumerate(chosen)
        ]


def live_minutes() -> dict[int, str]:
    """Six hours of one replica: all models, and as many tenants as a minute has."""
    now, texts = int(time.time()) // 60, {}
    for minute in range(now - 360, now):
        figures = FigureSet()
        names: list[tuple[Dimension, str]] = [("tenants", f"tenant-{each}") for each in range(40)]
        names += [("models", f"model-{each}") for each in range(12)]
        for part in (figures.all, *(figures.of(dimension, name) for dimension, name in names)):
            part.requests, part.tokens, part.picos = 100, 1000, {"usd": 10**9}
            part.durations.update(dict.fromkeys(range(-20, 10), 3))
            part.first_chunks.update(dict.fromkeys(range(-30, 0), 3))
        figures.fold(8)
        texts[minute] = json.dumps(figures.describe())
    return texts


def measure(client: http.client.HTTPConnection, listing: Listing) -> dict[str, float]:
    """Milliseconds of the pages of a list, one behind the other."""
    times, path, size = list[float](), listing.path, 0
    for _ in range(PAGES):
        body: dict[str, Any] = {}

        def exchange(path: str = path, body: dict[str, Any] = body) -> None:
            client.request("GET", path)
            response = client.getresponse()
            data = response.read()
            if response.status != 200:
                raise StartError(f"{path}: {response.status} {data[:300]!r}")
            body |= json.loads(data) | {"bytes": len(data)}

        times.append(timed(exchange))
        size = max(size, body["bytes"])
        if listing.following and (after := _after(listing, body)) is not None:
            path = f"{listing.path}&{listing.following}={quote(str(after), safe='')}"
    return {"p50": statistics.median(times), "p95": statistics.quantiles(times, n=20)[-1], "bytes": size}


def _after(listing: Listing, body: dict[str, Any]) -> Any:
    rows = body[listing.rows]
    return body["next"] if not listing.field else rows[-1][listing.field] if rows else None


def until_open(port: int, folder: Path, seconds: float = 120.0) -> http.client.HTTPConnection:
    """A connection to the admin listener, once it listens."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        try:
            client.request("GET", "/livez")
            client.getresponse().read()
            return client
        except OSError:
            time.sleep(0.1)
    raise StartError(f"the gateway did not listen:\n{log_tail('headrace', folder)}")


def main(argv: Sequence[str] | None = None) -> int:
    """Fill a database, start a gateway on it, and read every list."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--usage", type=int, default=1_000_000)
    parser.add_argument("--days", type=int, default=7)
    parser.add_argument("--database")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name:
        folder = Path(name)
        file = configuration(folder, options.database)
        config = settings_of(file)
        fill_all(config, options.rows, options.days, options.usage)
        launch = Launch([sys.executable, "-m", "gateway", "serve", "--config", str(file)])
        figures: dict[str, dict[str, float]] = {}
        with child("headrace", launch, "0-63", folder):
            client = until_open(config.listen.admin.port, folder)
            client.request("GET", "/admin/requests?limit=1")
            (first,) = json.loads(client.getresponse().read())["requests"]
            for listing in listings(first["id"], time.strftime("%Y-%m-01", time.gmtime())):
                figures[listing.name] = seen = measure(client, listing)
                p50, p95, size = seen["p50"], seen["p95"], seen["bytes"]
                print(f"{listing.name:28} p50 {p50:7.1f} ms   p95 {p95:7.1f} ms   {size:.0f} bytes")
            client.close()
        with closing(RequestStore(open_days(config.state.database, folder / "requests"))) as requests:
            for day in requests.days.sizes():
                requests.days.drop(day)
    print(json.dumps({"rows": options.rows, "lists": figures}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
