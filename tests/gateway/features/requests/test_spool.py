"""From ended requests through the spool to the database: crashes, full disks, absent databases, jumping clocks."""

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.errors import CredentialError, NotFound, TransportError
from config.schema.telemetry import UsageConfig
from gateway.errors import StartError
from gateway.features.journal.files import WaitingFiles
from gateway.features.journal.folders import prepare_folders, spool_of
from gateway.features.journal.live import LiveJournal
from gateway.features.journal.sink import RequestSink
from gateway.features.requests.report import summary, timeline
from gateway.features.requests.search import RequestQuery
from gateway.features.requests.writer import RequestWriter
from gateway.features.usage.report import UsageQuery
from gateway.features.usage.writer import UsageWriter
from gateway.state import journal
from tests.support.gateways import PEPPER, config
from tests.support.stored_requests import record
from tests.support.usage_hosts import NOVEMBER

DAY = 86400


class Host:
    """A host with processes and a writer, at a time of the test."""

    def __init__(self, folder: Path, database: str, **section: Any) -> None:
        self.now = float(NOVEMBER)
        self.clock = 0.0
        settings = {"folder": str(folder), **section}
        self.config = config(state={"database": database}, requests=settings)
        self.spool = spool_of(self.config)
        self.restart()

    def restart(self) -> None:
        """Begin other writers."""
        self.files = WaitingFiles(lambda: self.config, retained=0)
        self.usage = UsageWriter(lambda: self.config, lambda: PEPPER, self.files, lambda: self.now)
        self.writer = RequestWriter(lambda: self.config, self.files, lambda: self.now, lambda: self.clock)

    async def write(self) -> None:
        await self.usage.write()
        await self.writer.write()

    def sink(self) -> RequestSink:
        made = RequestSink(self.spool)
        made.configure(self.config)
        return made

    def later(self, seconds: float) -> None:
        self.now += seconds
        self.clock += seconds

    async def rows(self) -> list[dict[str, Any]]:
        store = await self.writer.store()
        return store.search(RequestQuery(0, 2**60, limit=1000))


async def test_a_request_is_stored_and_the_spool_is_empty(tmp_path: Path, any_database: str) -> None:
    host = Host(tmp_path / "requests", any_database)
    sink = host.sink()
    sink.put(record("a\0\ud800" + "x" * 500, error=TransportError("reset"), status=502, cost=None, usage=None))
    sink.put(record("b", tenant=""))
    sink.close()
    await host.write()
    (row,) = await host.rows()
    assert row["id"].startswith("a?x")
    assert len(row["id"]) < 257
    assert (row["error"], row["status"], row["currency"], row["picos"]) == ("transport", 502, "", 0)
    assert list(host.spool.iterdir()) == []
    await host.writer.aclose()


async def test_an_ended_key_in_use_has_records_and_fills_no_database(tmp_path: Path, any_database: str) -> None:
    """Each key is recorded once a second: no limit stops its holder. An id alone proves nothing, and is not stored."""
    host = Host(tmp_path / "requests", any_database)
    sink = host.sink()
    error = CredentialError("no").because("rotated", key="k" * 12, rotated_to="n" * 12)
    fields: dict[str, Any] = {"error": error, "reason": error.refusal, "status": 401, "model": "", "cost": None}
    for at in (0.0, 0.2, 0.9, 1.1):
        sink.put(record("r", at=NOVEMBER + at, usage=None, **fields))
    sink.put(record("other", tenant="", usage=None, **fields))
    sink.close()
    await host.write()
    newest, oldest = await host.rows()
    assert newest["at"] - oldest["at"] == 1_100_000
    assert timeline(newest)["reason"] == {"cause": "rotated", "key": "k" * 12, "rotated_to": "n" * 12}
    assert summary(newest)["cause"] == "rotated"
    await host.writer.aclose()


async def test_an_admin_of_a_tenant_learns_no_names_of_others(tmp_path: Path, any_database: str) -> None:
    host = Host(tmp_path / "requests", any_database)
    sink = host.sink()
    error = NotFound("no").because("model_not_allowed", model="secret-model")
    sink.put(record("r", error=error, reason=error.refusal, status=404, model="", cost=None, usage=None))
    sink.close()
    await host.write()
    (row,) = await host.rows()
    assert timeline(row)["reason"]["cause"] == "model_not_allowed"
    assert timeline(row, of_tenant=True)["reason"]["cause"] == "model_unknown"
    assert summary(row, of_tenant=True)["cause"] == "model_unknown"
    await host.writer.aclose()


async def test_a_record_that_cannot_be_encoded_counts_as_usage(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    host = Host(tmp_path / "requests", f"sqlite:///{tmp_path}/state.db")
    host.config = host.config.model_copy(update={"usage": UsageConfig(folder=str(tmp_path / "usage"))})
    sink = RequestSink(tmp_path / "usage")
    sink.configure(host.config)
    bad = record("bad")
    bad.trace.event("retry", "\ud800")
    sink.put(bad)
    sink.put(record("good"))
    sink.close()
    await host.write()
    assert (sink.unrecorded, sink.uncounted) == (1, 0)
    assert [row["id"] for row in await host.rows()] == ["good"]
    (row,) = (await host.usage.store()).report(UsageQuery(0, 10**6))
    assert row["requests"] == 2
    await host.usage.aclose()
    await host.writer.aclose()


steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 2), st.sampled_from(["acme", "beta"]), st.integers(0, 10**15)),
        st.tuples(st.just("write")),
        st.tuples(st.just("fail")),
        st.tuples(st.just("crash"), st.integers(0, 2)),
        st.tuples(st.just("restart")),
        st.tuples(st.just("later"), st.integers(1, 40)),
        st.tuples(st.just("earlier")),
    ),
    max_size=30,
)


@settings(max_examples=20, deadline=None)
@given(steps)
async def test_each_request_is_stored_once_over_any_schedule(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Any]
) -> None:
    """Three processes. Processes crash, writers restart, commits succeed though they seem to fail, clocks jump."""
    folder = tmp_path_factory.mktemp("requests")
    host = Host(folder / "requests", f"sqlite:///{folder}/state.db", retention="365d")
    sinks = [host.sink() for _ in range(3)]
    ended: list[tuple[str, str, int]] = []
    for number, step in enumerate(steps):
        match step:
            case "put", place, tenant, picos:
                sinks[place].put(record(f"r{number}", tenant, host.now, picos))
                ended.append((f"r{number}", tenant, picos))
            case ("write",):
                await host.write()
            case ("fail",):
                host.files._offsets["requests"].clear()
                await host.write()
                host.files._offsets["requests"].clear()
            case "crash", place:
                sinks[place].close()  # as the kernel closes it
                sinks[place] = host.sink()
            case ("restart",):
                host.writer._store.close()
                host.restart()
            case "later", hours:
                host.later(hours * 3600)
            case ("earlier",):
                host.now -= 3600
    for sink in sinks:
        sink.close()
    await host.write()
    assert list(host.spool.glob("*")) == []
    stored = await host.rows()
    assert Counter((row["id"], row["tenant"], row["picos"]) for row in stored) == Counter(ended)
    store = await host.writer.store()
    sums = store.totals(RequestQuery(0, 2**60))
    assert sum(total["picos"] for total in sums) == sum(picos for _, _, picos in ended)
    await host.writer.aclose()


async def test_a_full_disk_costs_records_and_no_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    host = Host(tmp_path / "requests", f"sqlite:///{tmp_path}/state.db")
    sink = host.sink()
    monkeypatch.setattr(journal, "_CHUNK", 64)
    sink.put(record("before"))
    for id_ in ("lost", "lost too"):
        with monkeypatch.context() as patched:
            patched.setattr(os, "posix_fallocate", full)
            sink.put(record(id_ * 40))
    sink.put(record("after"))
    sink.close()
    await host.write()
    assert (sink.unrecorded, sink.uncounted) == (2, 0)
    assert sorted(row["id"] for row in await host.rows()) == ["after", "before"]
    assert [message for message in caplog.messages if "No space" in message or "2 were lost" in message]
    assert list(host.spool.glob("*")) == []
    await host.writer.aclose()


async def test_records_wait_for_the_database_within_their_bound(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    host = Host(tmp_path / "requests", f"sqlite:///{tmp_path}/state.db", max_waiting="1KiB")
    (tmp_path / "requests" / "2026-11-01.db").mkdir(parents=True)
    for batch in range(4):
        sink = host.sink()
        for number in range(4):
            sink.put(record(f"{batch}-{number}"))
        sink.close()
        await host.write()
    assert [host.writer.available] == [False]
    (tmp_path / "requests" / "2026-11-01.db").rmdir()
    await host.write()
    assert host.writer.available
    stored = {row["id"] for row in await host.rows()}
    assert "3-3" in stored
    assert len(stored) + host.writer.dropped == 16
    assert 0 < host.writer.dropped < 16
    await host.writer.aclose()


async def test_days_end_by_retention_and_by_size(tmp_path: Path) -> None:
    host = Host(tmp_path / "requests", f"sqlite:///{tmp_path}/state.db", retention="2d")

    async def put(id_: str) -> None:
        sink = host.sink()
        sink.put(record(id_, at=host.now))
        sink.close()
        await host.write()

    for day in range(5):
        await put(f"d{day}")
        host.later(DAY)
    await host.write()
    assert {row["id"] for row in await host.rows()} == {"d3", "d4"}
    # A clock that jumps by a year deletes nothing at once.
    host.now += 365 * DAY
    await host.write()
    assert {row["id"] for row in await host.rows()} == {"d3", "d4"}
    host.now -= 365 * DAY
    host.later(400)
    await put("d5")
    host.config = config(state=host.config.state, requests={"folder": str(tmp_path / "requests"), "max": "1KiB"})
    host.later(400)
    await put("d6")
    assert host.writer.dropped == 1
    assert {row["id"] for row in await host.rows()} == {"d5"}
    await host.writer.aclose()


async def test_a_reload_begins_moves_and_ends_the_records(tmp_path: Path) -> None:
    live, host = LiveJournal(), Host(tmp_path / "a", f"sqlite:///{tmp_path}/state.db", exclude=["hidden-*"])
    first = live.configure(host.config)
    assert first is not None
    assert live.configure(host.config) is first
    first.put(record("one"))
    first.put(record("none", model="hidden-model"))
    other = config(state=host.config.state, requests={"folder": str(tmp_path / "b")})
    second = live.configure(other)
    assert second not in (None, first)
    assert live.configure(config()) is None
    live.close()
    await host.write()
    assert [row["id"] for row in await host.rows()] == ["one"]
    assert not live.unrecorded
    await host.writer.aclose()


def test_the_folder_is_of_one_user(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o777)
    with pytest.raises(StartError, match=r"requests: .* other users may write here"):
        prepare_folders(config(requests={"folder": str(tmp_path / "shared")}))
    made = config(requests={}, state={"database": f"sqlite:///{tmp_path}/deep/state.db"})
    prepare_folders(made)
    assert spool_of(made) == tmp_path / "deep" / "state.db.requests" / "spool"
