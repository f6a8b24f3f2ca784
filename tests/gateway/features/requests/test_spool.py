"""From ended requests through the spool to the database: crashes, full disks, absent databases, jumping clocks."""

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.errors import TransportError
from gateway.errors import StartError
from gateway.features.requests import sink as sinks
from gateway.features.requests.lines import MICROS, RequestLine
from gateway.features.requests.live import LiveRequests
from gateway.features.requests.search import RequestQuery
from gateway.features.requests.sink import RequestSink
from gateway.features.requests.spool import SpoolFile, encode, frames_of, spooled_files
from gateway.features.requests.writer import RequestWriter, prepare_folder, spool_of
from tests.support.gateways import config
from tests.support.stored_requests import crash, line, record
from tests.support.usage_hosts import NOVEMBER
from tests.support.waiting import until

DAY = 86400


class Host:
    """A host with processes and a writer, at a time of the test."""

    def __init__(self, folder: Path, database: str, **section: Any) -> None:
        self.now = float(NOVEMBER)
        self.clock = 0.0
        settings = {"folder": str(folder), **section}
        self.config = config(state={"database": database}, requests=settings)
        self.spool = spool_of(self.config) or folder
        self.writer = self.new_writer()

    def new_writer(self) -> RequestWriter:
        return RequestWriter(lambda: self.config, lambda: self.now, lambda: self.clock)

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


@pytest.fixture(autouse=True)
def _no_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests flush. A timer beside a thread would let the clock of the wall decide which comes first."""
    monkeypatch.setattr(sinks, "FLUSH_SECONDS", 3600.0)


async def test_a_request_is_stored_and_the_spool_is_empty(tmp_path: Path, any_database: str) -> None:
    host = Host(tmp_path / "requests", any_database)
    sink = host.sink()
    sink.put(record("a\0\ud800" + "x" * 500, error=TransportError("reset"), status=502, cost=None, usage=None))
    sink.put(record("b", tenant=""))
    await sink.aclose()
    await host.writer.write()
    (row,) = await host.rows()
    assert row["id"].startswith("a?x")
    assert len(row["id"]) < 257
    assert (row["error"], row["status"], row["currency"], row["picos"]) == ("transport", 502, "", 0)
    assert list(host.spool.iterdir()) == []
    await host.writer.aclose()


steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 2), st.sampled_from(["acme", "beta"]), st.integers(0, 10**15)),
        st.tuples(st.just("flush"), st.integers(0, 2)),
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
async def test_each_spooled_request_is_stored_once_over_any_schedule(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Any]
) -> None:
    """Three processes. Processes crash, writers restart, commits succeed though they seem to fail, clocks jump."""
    folder = tmp_path_factory.mktemp("requests")
    host = Host(folder / "requests", f"sqlite:///{folder}/state.db", retention="365d")
    sinks = [host.sink() for _ in range(3)]
    waiting: list[list[tuple[str, str, int]]] = [[], [], []]
    spooled: list[tuple[str, str, int]] = []
    for number, step in enumerate(steps):
        match step:
            case "put", place, tenant, picos:
                sinks[place].put(record(f"r{number}", tenant, host.now, picos))
                waiting[place].append((f"r{number}", tenant, picos))
            case "flush", place:
                await sinks[place]._flush()
                spooled += waiting[place]
                waiting[place] = []
            case ("write",):
                await host.writer.write()
            case ("fail",):
                host.writer._offsets = {}
                await host.writer.write()
                host.writer._offsets = {}
            case "crash", place:
                crash(sinks[place])
                sinks[place] = host.sink()
                waiting[place] = []
            case ("restart",):
                host.writer._store.close()
                host.writer = host.new_writer()
            case "later", hours:
                host.later(hours * 3600)
            case ("earlier",):
                host.now -= 3600
    for sink, lost in zip(sinks, waiting, strict=True):
        await sink.aclose()
        spooled += lost
    await host.writer.write()
    assert list(host.spool.glob("*")) == []
    stored = await host.rows()
    assert Counter((row["id"], row["tenant"], row["picos"]) for row in stored) == Counter(spooled)
    store = await host.writer.store()
    sums = store.totals(RequestQuery(0, 2**60))
    assert sum(total["picos"] for total in sums) == sum(picos for _, _, picos in spooled)
    await host.writer.aclose()


frames = st.lists(st.lists(st.builds(line, id=st.text(max_size=20), picos=st.integers(0, 2**63 - 1)), max_size=5))


@given(frames, st.data())
def test_a_torn_file_has_its_whole_frames(
    tmp_path_factory: pytest.TempPathFactory, written: list[list[RequestLine]], data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("spool")
    file = SpoolFile(folder)
    ends = [file.size]
    for each in written:
        file.append([encode(one) for one in each])
        ends.append(file.size)
    assert [one.is_final for one in spooled_files(folder)] == [False]
    file.close()
    (one,) = spooled_files(folder)
    assert (one.is_final, one.size) == (True, ends[-1])
    assert [frame.lines for frame in frames_of(file.path, 0, 2**30)] == written
    cut = data.draw(st.integers(0, ends[-1]))
    os.truncate(file.path, cut)
    whole = [frame.lines for frame in frames_of(file.path, 0, 2**30)]
    assert whole == written[: max(0, sum(end <= cut for end in ends) - 1)]


async def test_a_full_disk_costs_records_and_no_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    host = Host(tmp_path / "requests", f"sqlite:///{tmp_path}/state.db")
    sink = host.sink()
    sink.put(record("before"))
    await sink._flush()
    for id_ in ("lost", "lost too"):
        with monkeypatch.context() as patched:
            patched.setattr(os, "write", full)
            sink.put(record(id_))
            await sink._flush()
    sink.put(record("after"))
    await sink.aclose()
    await host.writer.write()
    assert sink.lost == {"disk": 2}
    assert sorted(row["id"] for row in await host.rows()) == ["after", "before"]
    assert [message for message in caplog.messages if "No space" in message or "2 were lost" in message]
    assert list(host.spool.glob("*")) == []
    await host.writer.aclose()


async def test_a_full_queue_drops_and_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sinks, "MOST_WAITING", 3)
    host = Host(tmp_path / "requests", f"sqlite:///{tmp_path}/state.db")
    sink = host.sink()
    for number in range(5):
        sink.put(record(f"r{number}"))
    await sink.aclose()
    assert sink.lost == {"queue": 2}


async def test_records_wait_for_the_database_within_their_bound(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    host = Host(tmp_path / "requests", f"sqlite:///{tmp_path}/state.db", max_waiting="1KiB")
    (tmp_path / "requests" / "2026-11-01.db").mkdir(parents=True)
    for batch in range(4):
        sink = host.sink()
        for number in range(4):
            sink.put(record(f"{batch}-{number}"))
        await sink.aclose()
        await host.writer.write()
    assert [host.writer.available] == [False]
    (tmp_path / "requests" / "2026-11-01.db").rmdir()
    await host.writer.write()
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
        await sink.aclose()
        await host.writer.write()

    for day in range(5):
        await put(f"d{day}")
        host.later(DAY)
    await host.writer.write()
    assert {row["id"] for row in await host.rows()} == {"d3", "d4"}
    # A clock that jumps by a year deletes nothing at once.
    host.now += 365 * DAY
    await host.writer.write()
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
    live, host = LiveRequests(), Host(tmp_path / "a", f"sqlite:///{tmp_path}/state.db", exclude=["hidden-*"])
    first = live.configure(host.config)
    assert first is not None
    assert live.configure(host.config) is first
    first.put(record("one"))
    first.put(record("none", model="hidden-model"))
    other = config(state=host.config.state, requests={"folder": str(tmp_path / "b")})
    second = live.configure(other)
    assert second not in (None, first)
    assert live.configure(config()) is None
    await live.aclose()
    await host.writer.write()
    assert [row["id"] for row in await host.rows()] == ["one"]
    assert not live.lost
    await host.writer.aclose()


async def test_a_record_is_written_without_a_further_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sinks, "FLUSH_SECONDS", 0.2)
    host = Host(tmp_path / "requests", f"sqlite:///{tmp_path}/state.db")
    sink = host.sink()
    sink.put(record("alone"))
    await until(lambda: list(host.spool.glob("*.spool")))
    await host.writer.write()
    assert [row["id"] for row in await host.rows()] == ["alone"]
    assert [row["at"] for row in await host.rows()] == [NOVEMBER * MICROS]
    await sink.aclose()
    await host.writer.aclose()


def test_the_folder_is_of_one_user(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o777)
    with pytest.raises(StartError, match=r"requests: .* other users may write here"):
        prepare_folder(config(requests={"folder": str(tmp_path / "shared")}))
    made = config(requests={}, state={"database": f"sqlite:///{tmp_path}/deep/state.db"})
    prepare_folder(made)
    assert spool_of(made) == tmp_path / "deep" / "state.db.requests" / "spool"
