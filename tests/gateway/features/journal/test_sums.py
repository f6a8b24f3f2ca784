"""Usage and the records of requests are sums of the ended requests, whatever is killed at which step."""

import os
import sqlite3
import tarfile
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, event

from config.schema.config import Config
from config.schema.money import format_amount
from gateway.features.journal.files import WaitingFiles
from gateway.features.journal.lines import PART, RequestLine, summed
from gateway.features.journal.live import LiveJournal
from gateway.features.journal.tables import RETAINED
from gateway.features.requests.search import LabelTest, RequestQuery
from gateway.features.requests.writer import RequestWriter
from gateway.features.usage.charges import charge_of
from gateway.features.usage.export import invoice, month_of
from gateway.features.usage.report import PER_LINE, UsageQuery
from gateway.features.usage.writer import UsageWriter
from gateway.limits.drawn import Draw, drawn
from tests.support.gateways import PEPPER, config
from tests.support.stored_requests import line, record
from tests.support.usage_hosts import NOVEMBER

MONTH = "2026-11"
TENANTS = ("acme", "beta")
USAGE: dict[str, Any] = {"hours": "3650d", "days": "3650d"}
REQUESTS: dict[str, Any] = {"retention": "3650d"}


class Killed(BaseException):
    """The end of a writer."""


@contextmanager
def killed_at(step: int) -> Iterator[None]:
    """End the writer before this statement, commit or change of a file, counted from 0."""
    left = step

    def pass_one(*_: Any) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise Killed

    def passing(change: Any) -> Any:
        def made(*arguments: Any, **named: Any) -> Any:
            pass_one()
            return change(*arguments, **named)

        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "unlink", passing(Path.unlink))
        patch.setattr(os, "fchmod", passing(os.fchmod))
        for name in ("before_cursor_execute", "commit"):
            event.listen(Engine, name, pass_one)
        try:
            yield
        finally:
            for name in ("before_cursor_execute", "commit"):
                event.remove(Engine, name, pass_one)


class Host:
    """The writers of a host, and what its processes have ended."""

    def __init__(self, made: Config) -> None:
        self.config = made
        self.clock = 0.0
        self.begin()
        self.billed: Counter[str] = Counter()
        self.stored: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()

    def end(self, journal: LiveJournal, id_: str, tenant: str, picos: int, at: float = NOVEMBER) -> None:
        """End a request in a process."""
        sink = journal.sink
        if sink is not None:
            sink.put(record(id_, tenant, at, picos))
            self.billed[tenant] += picos * sink._counts
            self.ended[tenant] += sink._counts
            self.stored[tenant] += picos * (sink._reasons is not None)

    def restart(self) -> None:
        """Begin other writers, as after a kill."""
        self.usage.opened.close()
        self.requests._store.close()
        self.begin()

    def begin(self) -> None:
        files = WaitingFiles(lambda: self.config, clock=lambda: self.clock)
        self.usage = UsageWriter(lambda: self.config, lambda: PEPPER, files)
        self.requests = RequestWriter(lambda: self.config, files)

    async def aclose(self) -> None:
        await self.requests.aclose()
        await self.usage.aclose()

    async def write(self, killed: int | None = None) -> bool:
        """Write what waits. Whether that was killed, at the step of this number."""
        if killed is None:
            await self.usage.write()
            await self.requests.write()
            return False
        try:
            with killed_at(killed):
                await self.write()
        except Killed:
            self.restart()
            return True
        return False

    async def until_forgotten(self) -> None:
        """Write what waits, and let the time pass for which imported files are retained."""
        for _ in range(2):
            await self.write()
            self.clock += RETAINED

    async def check(self) -> None:
        """The invoices are the sums of the requests, and so are the records."""
        bills, records = await self.usage.store(), await self.requests.store()
        for tenant in TENANTS:
            lines = bills.report(UsageQuery(*month_of(MONTH), PER_LINE, None, tenant))
            expected = [{"currency": "usd", "amount": format_amount(self.billed[tenant])}]
            assert invoice(tenant, MONTH, lines)["totals"] == (expected if self.ended[tenant] else [])
            assert sum(row["requests"] for row in lines) == self.ended[tenant]
            query = RequestQuery(0, 2**60, (LabelTest("tenant", tenant),), limit=1000)
            stored = sum(row["picos"] for row in records.search(query))
            assert stored == sum(total["picos"] for total in records.totals(query)) == self.stored[tenant]


def left_in(folder: Path) -> list[Path]:
    """The files that wait."""
    return [*folder.glob("state.db.usage/*"), *folder.glob("state.db.requests/spool/*")]


place = st.integers(0, 2)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("end"), place, st.sampled_from(TENANTS), st.integers(0, 10**21)),
        st.tuples(st.just("kill"), place),
        st.tuples(st.just("reload"), place, st.integers(0, 3)),
        st.tuples(st.just("write"), st.none() | st.integers(0, 60)),
        st.tuples(st.just("restart")),
        st.tuples(st.just("later"), st.integers(1, 30 * 3600)),
        st.tuples(st.just("copy")),
        st.tuples(st.just("fail over")),
    ),
    max_size=30,
)


class Standby:
    """A copy of the databases of a folder, which takes their place while writers have them open."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._copies: dict[Path, sqlite3.Connection] = {}

    def _present(self) -> list[Path]:
        return [*self._folder.glob("state.db"), *self._folder.glob("state.db.requests/*.db")]

    def copy(self) -> None:
        """Receive all that is committed."""
        for path in self._present():
            copied = self._copies.setdefault(path, sqlite3.connect(":memory:"))
            with closing(sqlite3.connect(path)) as source:
                source.backup(copied)

    def fail_over(self) -> None:
        """What was committed since the copy is lost."""
        for path in self._present():
            if (copied := self._copies.get(path)) is not None:
                with closing(sqlite3.connect(path)) as target:
                    copied.backup(target)
            elif path.stem != "state" and self._copies:
                path.unlink()

    def close(self) -> None:
        for copied in self._copies.values():
            copied.close()


@settings(max_examples=15, deadline=None)
@given(steps)
async def test_invoices_and_records_are_the_sums_of_the_ended_requests(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Any]
) -> None:
    """Three processes, which a reload lets store usage, records, both or none. The database may lose changes."""
    folder = tmp_path_factory.mktemp("sums")
    state, standby = {"database": f"sqlite:///{folder}/state.db"}, Standby(folder)
    sections: Any = ({"usage": USAGE, "requests": REQUESTS}, {"usage": USAGE}, {"requests": REQUESTS}, {})
    kinds = [config(state=state, **each) for each in sections]
    host, now = Host(kinds[0]), float(NOVEMBER)
    processes = [LiveJournal() for _ in range(3)]
    for process in processes:
        process.configure(kinds[0])
    for number, step in enumerate(steps):
        match step:
            case "end", at, tenant, picos:
                host.end(processes[at], f"r{number}", tenant, picos, now)
            case "kill", at:
                processes[at].close()  # as the kernel closes its file
                processes[at] = LiveJournal()
                processes[at].configure(kinds[0])
            case "reload", at, kind:
                processes[at].configure(kinds[kind])
            case "write", killed:
                await host.write(killed)
            case ("restart",):
                host.restart()
            case "later", seconds:
                now = min(now + seconds, NOVEMBER + 29 * 86400.0)
            case ("copy",):
                standby.copy()
            case ("fail over",):
                standby.fail_over()
    for process in processes:
        process.close()
    await host.write()
    await host.check()
    await host.until_forgotten()
    assert not left_in(folder)
    standby.close()
    await host.aclose()


async def test_a_writer_that_is_killed_at_any_step_neither_loses_nor_doubles(any_database: str, tmp_path: Path) -> None:
    sections = {
        "usage": {"folder": str(tmp_path / "u"), **USAGE},
        "requests": {"folder": str(tmp_path / "r"), **REQUESTS},
    }
    host = Host(config(state={"database": any_database}, **sections))
    lasting = LiveJournal()
    lasting.configure(host.config)
    for step in count():
        ended = LiveJournal()
        ended.configure(host.config)
        for number in range(3):
            host.end(ended, f"{step}-{number}", TENANTS[number % 2], 10**12 + step)
            host.end(lasting, f"{step}+{number}", TENANTS[number % 2], 2**62 + number)
        ended.close()
        was_killed = await host.write(step)
        await host.write()
        await host.check()
        if not was_killed:
            break
    assert step > 20
    lasting.close()
    await host.until_forgotten()
    await host.aclose()
    assert not list((tmp_path / "u").iterdir())


async def test_a_host_of_an_earlier_release_is_continued(tmp_path: Path) -> None:
    """Its database has a part of its files, which are of its formats."""
    with tarfile.open(Path(__file__).with_name("earlier.tar.gz")) as earlier:
        earlier.extractall(tmp_path, filter="data")
    made = config(state={"database": f"sqlite:///{tmp_path}/state.db"}, usage=USAGE, requests=REQUESTS)
    host, process = Host(made), LiveJournal()
    for number in range(5):
        tenant = "acme" if number % 2 else "beta"
        for sums, amount in ((host.billed, 10**12 + number), (host.stored, 10**12 + number), (host.ended, 1)):
            sums[tenant] += amount
    process.configure(made)
    host.end(process, "new", "acme", 5)
    process.close()
    for _ in range(2):
        await host.write()
        await host.check()
    await host.until_forgotten()
    assert not left_in(tmp_path)
    await host.aclose()


async def test_usage_waits_while_a_reload_has_removed_its_section(tmp_path: Path) -> None:
    state = {"database": f"sqlite:///{tmp_path}/state.db"}
    both, records = config(state=state, usage=USAGE, requests=REQUESTS), config(state=state, requests=REQUESTS)
    host, process = Host(both), LiveJournal()
    process.configure(both)
    host.end(process, "first", "acme", 5)
    await host.write()
    host.config = records
    host.end(process, "last", "acme", 7)
    process.configure(records)
    host.end(process, "uncounted", "acme", 11)
    process.close()
    for _ in range(2):
        await host.requests.write()
        host.clock += RETAINED
    await host.requests.write()
    assert [path.parent.name for path in left_in(tmp_path)] == ["state.db.usage"]
    host.restart()
    host.config = both
    await host.write()
    await host.check()
    await host.until_forgotten()
    assert not left_in(tmp_path)
    await host.aclose()


async def test_files_beyond_the_bound_are_reduced_to_their_usage(tmp_path: Path) -> None:
    """While the database is away, and also if it has a part of a file."""
    database = tmp_path / "state.db"
    made = config(
        state={"database": f"sqlite:///{database}"}, usage=USAGE, requests={**REQUESTS, "max_waiting": "2KiB"}
    )
    host, journals = Host(made), [LiveJournal() for _ in range(8)]
    for journal in journals:
        journal.configure(made)
    host.end(journals[0], "begun", "acme", 1)
    await host.write()
    database.rename(tmp_path / "away")
    database.mkdir()
    (tmp_path / "state.db.requests/2026-11-01.db").rename(tmp_path / "day")
    (tmp_path / "state.db.requests/2026-11-01.db").mkdir()
    for number, journal in enumerate(journals):
        for request in range(9):
            host.end(journal, f"{number}-{request}", TENANTS[request % 2], 10**20 + number)
        journal.close()
        await host.write()
    assert not host.usage.available
    size = sum(path.stat().st_size for path in (tmp_path / "state.db.usage").iterdir())
    assert size < 2048 + 9 * 400 + 8 * 300, "one file that had begun, and sums"
    database.rmdir()
    (tmp_path / "away").rename(database)
    (tmp_path / "state.db.requests/2026-11-01.db").rmdir()
    (tmp_path / "day").rename(tmp_path / "state.db.requests/2026-11-01.db")
    host.restart()
    await host.write()
    bills, records = await host.usage.store(), await host.requests.store()
    rows = bills.report(UsageQuery(*month_of(MONTH)))
    assert {row["tenant"]: (row["picos"], row["requests"]) for row in rows} == {
        tenant: (host.billed[tenant], host.ended[tenant]) for tenant in TENANTS
    }
    assert 9 < len(records.search(RequestQuery(0, 2**60, limit=1000))) < 73
    await host.aclose()


lines = st.builds(
    line,
    at=st.integers(0, 10**11),
    tenant=st.sampled_from(TENANTS),
    error=st.sampled_from(["", "backend"]),
    picos=st.integers(0, 2**63 - 1),
    billions=st.integers(0, 10**15),
    counted=st.just(True),
    lineage=st.sampled_from(["", "first"]),
    draws=st.lists(
        st.builds(
            Draw,
            ledger=st.sampled_from(["here", "there"]),
            name=st.sampled_from(["a", "b"]),
            begin=st.sampled_from([0, 86400]),
            until=st.just(10**10),
            amount=st.integers(0, 2**63 - 1),
            billions=st.integers(0, 10**15),
        ),
        max_size=3,
    ).map(tuple),
)


@given(st.lists(lines, max_size=20))
def test_sums_are_as_much_usage_as_their_lines(made: list[RequestLine]) -> None:
    def usage(some: list[RequestLine]) -> Counter[Any]:
        amounts: Counter[Any] = Counter()
        for each in (each for each in some if each.counted):
            charge = charge_of(each, "usd")
            for at, amount in enumerate(charge.amounts):
                amounts[charge.hour, charge.labels, at] += amount
        return +amounts

    sums = summed(made)
    assert usage(sums) == usage(made)
    assert usage(summed(sums)) == usage(made)
    whole = drawn(draw for each in made for draw in each.draws)
    assert drawn(draw for each in sums for draw in each.draws) == whole
    assert all(draw.amount < PART * PART for each in sums for draw in each.draws)
    assert all(each.picos < PART * PART for each in sums)
