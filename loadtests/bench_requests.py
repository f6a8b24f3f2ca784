"""Measures the records of requests: writes a second, and pages of searches over a million rows.

    python -m loadtests.bench_requests [--rows 1000000] [--days 7] [--database postgresql://…]

The store is that of the gateway. The last line is one JSON object with milliseconds of each search.
"""

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from gateway.features.journal.files import WaitingLine
from gateway.features.journal.lines import DAY_MICROS, MICROS, RequestLine
from gateway.features.requests.days import open_days
from gateway.features.requests.search import LabelTest, RequestQuery
from gateway.features.requests.store import RequestStore

BATCH = 1000
PAGES = 40
"""Pages of each search."""
_DETAIL = (
    '{"decision":{"route":0,"pools":["main","spare"],"line":41,"when":"every request"},'
    '"attempts":[["main/http://10.0.0.5:8000",0.4]],"overhead_ms":0.41,"client":"10.0.0.7"}'
)


def lines(rows: int, days: int, rng: random.Random) -> Iterator[RequestLine]:
    """Requests of 200 tenants with 4 keys each, 12 models and 20,000 end users; 3 % fail. A few have most of them."""
    end = int(time.time() * MICROS)
    begin = end - days * DAY_MICROS
    for number in range(rows):
        tenant = int(200 * rng.random() ** 3)
        status = 200 if rng.random() < 0.97 else rng.choice((429, 500, 502, 503, 504))
        yield RequestLine(
            at=begin + number * (end - begin) // rows, id=f"req_{rng.getrandbits(64):016x}", tenant=f"tenant-{tenant}",
            key=f"key{tenant}-{rng.randrange(4)}", model=f"model-{int(12 * rng.random() ** 2)}", operation="chat",
            pool="main", arm="", status=status,
            error="" if status == 200 else "capacity" if status == 429 else "backend",
            code="" if status == 200 else "upstream_error", currency="usd", endpoint="main/http://10.0.0.5:8000",
            trace="", stream=True, duration=1_500_000, first_chunk=90_000, picos=123_456_789,
            usage=(1200, 300, 900, 0, 0, 4000, 0), detail=_DETAIL,
            user=f"user-{int(20_000 * rng.random() ** 3)}",
        )  # fmt: skip


def fill(store: RequestStore, rows: int, days: int) -> float:
    """Write all rows as the writer of a gateway does. Returns rows a second."""
    rng, batch, end = random.Random(5), list[RequestLine](), 0
    began = time.perf_counter()
    for line in lines(rows, days, rng):
        batch.append(line)
        if len(batch) == BATCH:
            store.write("bench", [WaitingLine(end + at, each) for at, each in enumerate(batch, 1)], "1970-01-01")
            end += BATCH
            batch = []
    return rows / (time.perf_counter() - began)


def searches(ids: Sequence[str]) -> dict[str, Callable[[int], RequestQuery]]:
    """Searches by name; each page of each search begins at a random time."""
    now, rng = int(time.time() * MICROS) + 1, random.Random(7)

    def query(*tests: LabelTest) -> Callable[[int], RequestQuery]:
        return lambda days: RequestQuery(0, now - rng.randrange(days * DAY_MICROS // 2), tests)

    return {
        "newest": query(),
        "id": lambda _: RequestQuery(0, now, (), rng.choice(ids)),
        "end user with many": lambda _: RequestQuery(0, now, user="user-0"),
        "end user and 5xx": lambda _: RequestQuery(0, now, (LabelTest("status", 500, 599),), user="user-0"),
        "end user": lambda _: RequestQuery(0, now, user=f"user-{rng.randrange(1, 20_000)}"),
        "absent id": lambda _: RequestQuery(0, now, (), "req_none"),
        "large tenant": query(LabelTest("tenant", "tenant-0")),
        "small tenant": query(LabelTest("tenant", "tenant-199")),
        "tenant and model": query(LabelTest("tenant", "tenant-150"), LabelTest("model", "model-11")),
        "absent tenant": query(LabelTest("tenant", "nobody")),
        "model": query(LabelTest("model", "model-3")),
        "key": query(LabelTest("key", "key42-1")),
        "pool": query(LabelTest("pool", "main")),
        "errors": query(LabelTest("error", None)),
        "status 504": query(LabelTest("status", 504)),
        "tenant and 5xx": query(LabelTest("tenant", "tenant-42"), LabelTest("status", 500, 599)),
        "status 200": query(LabelTest("status", 200)),
    }


def timed(work: Callable[[], object]) -> float:
    """Milliseconds."""
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1000


def measure(store: RequestStore, days: int) -> dict[str, dict[str, float]]:
    """The median and the 95th percentile of the pages of each search, and of its totals."""
    ids = [row["id"] for row in store.search(RequestQuery(0, 2**60, limit=500))]
    figures: dict[str, dict[str, float]] = {}
    for name, made in searches(ids).items():
        pages, totals = [], []
        for _ in range(PAGES // 2):
            query = made(days)
            pages.append(timed(lambda query=query: store.search(query)))  # type: ignore[misc]
            rows = store.search(query)
            if len(rows) == query.limit:
                second = query._replace(after=(rows[-1]["at"], rows[-1]["number"]))
                pages.append(timed(lambda second=second: store.search(second)))  # type: ignore[misc]
            totals.append(timed(lambda query=query: store.totals(query)))  # type: ignore[misc]
        p95 = statistics.quantiles(pages, n=20)[-1]
        most = statistics.quantiles(totals, n=20)[-1]
        figures[name] = {"p50": statistics.median(pages), "p95": p95, "totals_p95": most}
        print(f"{name:18} p50 {statistics.median(pages):7.1f} ms   p95 {p95:7.1f} ms   totals p95 {most:7.1f} ms")
    return figures


def main(argv: Sequence[str] | None = None) -> int:
    """Fill a database, search it, drop a day."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--days", type=int, default=7)
    parser.add_argument("--database", default="sqlite:///state.db")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        store = RequestStore(open_days(options.database, Path(folder)))
        written = fill(store, options.rows, options.days)
        size = sum(store.days.sizes().values()) / options.rows
        print(f"{options.rows} rows: {written:.0f} rows a second, {size:.0f} bytes a row")
        figures = measure(store, options.days)
        day = list(store.days.sizes())[-1]
        print(f"a day is dropped in {timed(lambda: store.days.drop(day)):.1f} ms")
        for day in store.days.sizes():
            store.days.drop(day)
        store.close()
    print(json.dumps({"rows_per_second": written, "bytes_per_row": size, "searches": figures}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
