"""Usage from requests to the database: exact over crashes, doubled writes, several processes and summed days."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.errors import LimitExceeded, Overloaded, TransportError
from config.schema.money import Money, format_amount
from gateway.errors import StartError
from gateway.features.journal.files import lines_of
from gateway.features.journal.folders import folder_of, prepare_folders
from gateway.features.usage import rows as rows_module
from gateway.features.usage.charges import Charge
from gateway.features.usage.export import FOCUS, csv_of, focus_of, invoice, month_of
from gateway.features.usage.labels import HOUR, LABELS, OTHERS, UsageLabels, day_of
from gateway.features.usage.overview import OverviewQuery
from gateway.features.usage.query import BadQuery, query_of
from gateway.features.usage.report import PER_LINE, UsageQuery
from gateway.features.usage.rows import WriterRows
from gateway.state.errors import StoreUnavailable
from gateway.state.journal import LARGEST, journals
from tests.support.gateways import config
from tests.support.usage_hosts import NOVEMBER, Host, counting, record


async def test_requests_are_summed_by_label(tmp_path: Path, any_database: str) -> None:
    one = Host(tmp_path / "counts", any_database)
    counter = counting(one.folder)
    for tenant, model in (("acme", "m"), ("acme", "m"), ("acme", "n"), ("beta", "m")):
        counter.put(record(tenant, model))
    counter.put(record(cost=None, usage=None, error=TransportError("reset")))
    counter.put(record(cost=None, usage=None, error=Overloaded("full"), status=503))
    over = LimitExceeded("over", limit="requests", retry_after=1.0)
    counter.put(record(cost=None, usage=None, error=over, status=429))
    counter.put(record(tenant=""))
    await one.writer.write()
    rows = {(row["tenant"], row["currency"]): row for row in await one.rows()}
    assert {key: row["picos"] for key, row in rows.items()} == {
        ("acme", ""): 0,
        ("acme", "usd"): 21,
        ("beta", "usd"): 7,
    }
    assert (rows["acme", ""]["requests"], rows["acme", ""]["failures"]) == (3, 2)  # a limit is no failure
    assert (rows["acme", "usd"]["prompt_tokens"], rows["acme", "usd"]["completion_tokens"]) == (9, 6)
    by_model = await one.rows(by=("model",), tenant="acme", per="day")
    assert [(row["day"], row["model"], row["requests"]) for row in by_model] == [
        ("2026-11-01", "m", 3),
        ("2026-11-01", "m", 2),
        ("2026-11-01", "n", 1),
    ]
    counter.close()
    await one.writer.aclose()
    assert list(one.folder.iterdir()) == []


def _unanswered(write: Any, *arguments: Any) -> None:
    """A commit whose answer is lost."""
    write(*arguments)
    raise StoreUnavailable("the database is away")


steps = st.lists(
    st.one_of(
        st.tuples(st.just("count"), st.integers(0, 2), st.sampled_from(["acme", "beta"]), st.integers(0, 10**15)),
        st.tuples(st.just("write")),
        st.tuples(st.just("fail")),
        st.tuples(st.just("crash"), st.integers(0, 2)),
        st.tuples(st.just("restart")),
        st.tuples(st.just("later"), st.integers(1, 40)),
        st.tuples(st.just("earlier")),
    ),
    max_size=40,
)


@settings(max_examples=20, deadline=None)
@given(steps)
async def test_bills_are_the_sum_of_the_requests_over_any_schedule(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Any]
) -> None:
    """Three processes count. Processes crash, writers restart, commits succeed though they seem to fail."""
    folder = tmp_path_factory.mktemp("usage")
    one = Host(folder / "counts", f"sqlite:///{folder}/state.db")
    counters = [counting(one.folder) for _ in range(3)]
    billed: Counter[tuple[str, str]] = Counter()
    for step in steps:
        match step:
            case "count", place, tenant, picos:
                counters[place].put(record(tenant, at=one.now, picos=picos))
                billed[tenant, day_of(int(one.now) // HOUR)[:7]] += picos
            case ("write",):
                await one.writer.write()
            case ("fail",):
                store = one.writer.opened()
                store.add = partial(_unanswered, store.add)  # type: ignore[method-assign]
                await one.writer.write()
                del store.add
            case "crash", place:
                counters[place].close()  # as the kernel closes it; the file has all requests
                counters[place] = counting(one.folder)
            case ("restart",):
                one.writer.opened.close()
                one.restart()
            case "later", hours:
                one.now += hours * HOUR
            case ("earlier",):
                one.now -= HOUR
    for counter in counters:
        counter.close()
    await one.writer.write()
    assert list(one.folder.glob("*")) == []
    rows = await one.rows(per="month")
    assert {(row["tenant"], row["month"]): row["picos"] for row in rows} == dict(billed)
    for tenant, month in billed:
        store = await one.writer.store()
        lines = store.report(UsageQuery(*month_of(month), PER_LINE, None, tenant))
        assert invoice(tenant, month, lines)["totals"] == [
            {"currency": "usd", "amount": format_amount(billed[tenant, month])}
        ]
    await one.writer.aclose()


async def test_summed_days_survive_their_hours_and_late_rows_sum_them_again(tmp_path: Path, any_database: str) -> None:
    one = Host(tmp_path / "counts", any_database)
    late = counting(tmp_path / "away")
    late.put(record(picos=100))
    for day in range(3):
        counter = counting(one.folder)
        counter.put(record(at=NOVEMBER + day * 24 * HOUR, picos=day + 1))
        counter.close()
    await one.writer.write()
    store = await one.writer.store()
    one.now = NOVEMBER + 2 * 24 * HOUR + HOUR
    assert store.sum_days(0, "0000-00-00") == ["2026-11-01"]
    one.now = NOVEMBER + 4 * 24 * HOUR
    assert store.sum_days(0, "0000-00-00") == ["2026-11-02", "2026-11-03"]
    assert [row["picos"] for row in await one.rows(per="day")] == [1, 2, 3]
    (file,) = journals(tmp_path / "away")
    lines = list(lines_of(file, 0, file.size))
    store.add("late", lines, 0, "")  # another host was cut off from the database
    assert [row["picos"] for row in await one.rows(per="day")] == [101, 2, 3]
    assert store.sum_days(0, "0000-00-00") == ["2026-11-01"]
    store.sum_days(NOVEMBER // HOUR + 25, "0000-00-00")  # the hours of the first day are no longer retained
    assert [row["picos"] for row in await one.rows(per="day")] == [101, 2, 3]
    assert [row["picos"] for row in await one.rows(per="hour")] == [2, 3]
    store.add("later", lines, NOVEMBER // HOUR + 1, "")
    assert [row["picos"] for row in await one.rows()] == [106]
    store.sum_days(NOVEMBER // HOUR + 25, "2026-11-02")
    assert [row["picos"] for row in await one.rows(per="day")] == [2, 3]
    late.close()
    await one.writer.aclose()


@settings(max_examples=10, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 96), st.integers(0, 9)), max_size=20), st.integers(0, 96), st.integers(0, 96))
async def test_a_report_of_any_time_is_the_sum_of_its_hours(
    tmp_path_factory: pytest.TempPathFactory, counts: list[tuple[int, int]], begin: int, end: int
) -> None:
    folder = tmp_path_factory.mktemp("usage")
    one, first = Host(folder / "counts", f"sqlite:///{folder}/state.db"), NOVEMBER // HOUR
    for hour, picos in counts:
        counter = counting(one.folder)
        counter.put(record(at=(first + hour) * HOUR, picos=picos))
        counter.close()
    one.now = (first + 60) * HOUR  # two days have ended
    await one.writer.write()
    expected = sum(picos for hour, picos in counts if begin <= hour < end)
    for per in (None, "hour", "day", "month"):
        rows = await one.rows(begin=first + begin, end=first + end, per=per)
        assert sum(row["picos"] for row in rows) == expected
    await one.writer.aclose()


async def test_pages_are_the_whole(tmp_path: Path, any_database: str) -> None:
    one, counter = Host(tmp_path / "counts", any_database), counting(tmp_path / "counts")
    for number in range(25):
        counter.put(record(f"t{number % 5}", f"m{number}"))
    await one.writer.write()
    query: dict[str, Any] = {"by": ("tenant", "model"), "per": "day"}
    rows = await one.rows(**query)
    paged: list[Any] = []
    after: list[str] = []
    while page := await one.rows(**query, after=after, limit=4):
        paged += page
        after = [page[-1][name] for name in ("day", "tenant", "model", "currency")]
    assert paged == rows
    assert len(rows) == 25
    counter.close()
    await one.writer.aclose()


@pytest.mark.processes
def test_a_killed_process_loses_no_request(tmp_path: Path) -> None:
    script = (
        "import sys, os, signal; from pathlib import Path\n"
        "from tests.support.usage_hosts import counting, record\n"
        "sink = counting(Path(sys.argv[1]))\n"
        "for number in range(1000): sink.put(record(f't{number % 300}'))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False)
    assert done.returncode == -signal.SIGKILL
    (file,) = journals(tmp_path)
    assert file.is_final
    assert Counter(each.line.tenant for each in lines_of(file, 0, LARGEST)).total() == 1000


def test_labels_beyond_an_hour_share_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "MOST_SLOTS", 10)
    rows = WriterRows()
    made = [*rows.of(_charge(f"k{n}") for n in range(30)), *rows.of(_charge(f"k{n}") for n in range(20, 50))]
    assert len({(row["source"], row["slot"]) for row in made}) == 11
    assert Counter({row["key"]: 0 for row in made}).keys() == {*(f"k{n}" for n in range(10)), OTHERS}
    assert sum(row["requests"] for row in made) == 60


def _charge(key: str, user: str = "", tenant: str = "acme") -> Charge:
    return Charge(5, UsageLabels(tenant, key, "m", "", "usd", "", user), [7, 1, 0, 0, 0, 0, 0, 0])


@given(
    requests=st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(["", *"uvwxyz"])), max_size=60),
    most=st.integers(0, 4),
)
def test_users_beyond_the_setting_share_a_row(requests: list[tuple[str, str]], most: int) -> None:
    rows, sums = WriterRows(most), Counter[tuple[str, str]]()
    for tenant, user in requests:
        for row in rows.of([_charge("k", user, tenant)]):
            sums[row["tenant"], row["user"]] += row["requests"]
    for tenant in "ab":
        own = [user for each, user in requests if each == tenant]
        first = list(dict.fromkeys(user for user in own if user))[:most]
        expected = Counter(user if not user or user in first else OTHERS for user in own)
        assert {user: count for (each, user), count in sums.items() if each == tenant} == expected


def test_invented_users_take_no_place_of_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "MOST_SLOTS", 10)
    rows = WriterRows(1000)
    rows.of(_charge("k", f"u{number}") for number in range(50))
    assert {row["key"] for row in rows.of(_charge(f"k{number}") for number in range(4))} == {f"k{n}" for n in range(4)}


async def test_usage_has_users_if_it_is_set(tmp_path: Path, any_database: str) -> None:
    for setting, expected in ((0, {"": 3}), (1000, {"": 4, "zoë": 2})):
        one = Host(tmp_path / f"counts{setting}", any_database)
        one.config = config(state={"database": any_database}, usage={"folder": str(one.folder), "users": setting})
        counter = counting(one.folder)
        counter.configure(one.config)
        for user in ("", "zoë", "zoë"):
            counter.put(record(user=user))
        await one.writer.write()
        rows = await one.rows(by=("user",))
        assert {row["user"]: row["requests"] for row in rows} == expected
        (row,) = await one.rows(by=("tenant",), tests=(("user", "zoë"),)) or [{"requests": 0}]
        assert row["requests"] == expected.get("zoë", 0)
        store = await one.writer.store()
        query = OverviewQuery(date(2026, 11, 1), date(2026, 11, 3), date(2026, 11, 3), "user")
        for _ in range(2):
            assert {row["value"]: row["requests"] for row in store.overview(query)["rows"]} == expected
            one.now = NOVEMBER + 3 * 86400.0
            store.sum_days(0, "")
        counter.close()
        await one.writer.aclose()


def test_a_full_disk_costs_usage_and_no_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    counter = counting(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(os, "posix_fallocate", full)
        for _ in range(3):
            counter.put(record())
    counter.put(record())
    assert (counter.uncounted, counter.unrecorded) == (3, 0)
    assert len(caplog.messages) == 2
    counter.close()
    (file,) = journals(tmp_path)
    assert len(list(lines_of(file, 0, file.size))) == 1
    assert list(tmp_path.iterdir()) == [file.path]


async def test_files_wait_for_the_database(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "state.db").mkdir()
    one, counter = Host(tmp_path / "counts", f"sqlite:///{tmp_path}/state.db"), counting(tmp_path / "counts")
    counter.put(record())
    counter.close()
    available = []
    for is_present in (False, False, True):
        if is_present:
            (tmp_path / "state.db").rmdir()
        await one.writer.write()
        available.append(one.writer.available)
    assert available == [False, False, True]
    assert [row["picos"] for row in await one.rows()] == [7]
    assert len(caplog.messages) == 2
    await one.writer.aclose()


def test_the_folder_is_of_one_user(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    with pytest.raises(StartError, match="other users may write here"):
        prepare_folders(config(usage={"folder": str(shared)}))
    made = config(usage={}, state={"database": f"sqlite:///{tmp_path}/deep/state.db"})
    prepare_folders(made)
    folder = folder_of(made)
    assert folder == tmp_path / "deep" / "state.db.usage"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert folder_of(config()) is None
    assert "headrace-usage-" in str(folder_of(config(usage={}, state={"database": "postgresql+psycopg://h/d"})))


def test_texts_of_a_query() -> None:
    query = query_of({"from": "2026-11-01", "to": "2026-11-02T13:00Z", "by": "model, key", "per": "day"})
    assert (query.begin * HOUR, query.end * HOUR) == (NOVEMBER, NOVEMBER + 37 * HOUR)
    assert (query.by, query.per, query.tenant) == (("model", "key"), "day", None)
    assert query_of({}, "acme").tenant == "acme"
    assert query_of({"per": "hour", "after": '[5,"acme","usd"]'}).after == [5, "acme", "usd"]


@pytest.mark.parametrize(
    ("texts", "name"),
    [
        ({"from": "yesterday"}, "from"),
        ({"from": "2026-11-01T00:30"}, "from"),
        ({"to": "9999-99-99"}, "to"),
        ({"from": "2026-11-02", "to": "2026-11-01"}, "to"),
        ({"by": "tenant,tenant"}, "by"),
        ({"by": "tenant; drop table"}, "by"),
        ({"per": "week"}, "per"),
        ({"limit": "0"}, "limit"),
        ({"limit": "1e3"}, "limit"),
        ({"limit": "9" * 400}, "limit"),
        ({"after": "[1]"}, "after"),
        ({"after": '["acme",1]'}, "after"),
        ({"after": "\udcff"}, "after"),
        ({"tenant": "beta"}, "tenant"),
    ],
)
def test_queries_that_are_refused(texts: dict[str, str], name: str) -> None:
    with pytest.raises(BadQuery) as refused:
        query_of(texts, "acme")
    assert refused.value.name == name


ROW = {
    "day": "2026-11-30", "tenant": "=HYPERLINK(1)", "key": "k", "model": "m", "arm": "", "currency": "usd", "team": "",
    "picos": 1_500_000_000_001, "requests": 3, "failures": 0, "prompt_tokens": 5, "completion_tokens": 6, "rows": 0,
}  # fmt: skip


def test_a_focus_file_has_exact_charges_and_no_formula() -> None:
    head, line = focus_of([ROW, {**ROW, "currency": ""}]).splitlines()
    charge = dict(zip(head.split(","), line.split(","), strict=True))
    assert head.split(",") == list(FOCUS)
    assert (charge["BilledCost"], charge["BillingCurrency"]) == ("1.500000000001", "USD")
    times = [charge[f"{period}Period{end}"][:10] for period in ("Billing", "Charge") for end in ("Start", "End")]
    assert times == ["2026-11-01", "2026-12-01", "2026-11-30", "2026-12-01"]
    assert charge["SubAccountId"] == "k"
    assert charge["BillingAccountId"] == "'=HYPERLINK(1)"
    assert charge["Tags"] == "{}"
    assert focus_of([{**ROW, "team": "search"}]).splitlines()[1].count('"{""team"": ""search""}"') == 1
    assert csv_of(LABELS, [ROW]).splitlines()[1] == "'=HYPERLINK(1),k,m,,usd,,"


def test_lines_of_an_invoice_add_up() -> None:
    made = invoice("acme", "2026-12", [ROW, {**ROW, "model": "n"}, {**ROW, "currency": "eur"}, {**ROW, "currency": ""}])
    assert made["period"] == {"from": "2026-12-01T00:00:00Z", "to": "2027-01-01T00:00:00Z"}
    assert made["totals"] == [
        {"currency": "usd", "amount": "3.000000000002"},
        {"currency": "eur", "amount": "1.500000000001"},
    ]
    assert made["teams"] == [
        {"team": None, "amount": "1.500000000001", "currency": "eur"},
        {"team": None, "amount": "3.000000000002", "currency": "usd"},
    ]
    assert made["lines"][0]["quantities"] == {"prompt tokens": 5, "completion tokens": 6}
    assert json.dumps(made)


async def test_files_of_other_users_are_no_usage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, counter = Host(tmp_path / "counts", f"sqlite:///{tmp_path}/state.db"), counting(tmp_path / "counts")
    counter.put(record())
    with monkeypatch.context() as patched:
        patched.setattr(os, "geteuid", lambda: os.getuid() + 1)
        await one.writer.write()
    assert await one.rows() == []
    await one.writer.write()
    assert [row["requests"] for row in await one.rows()] == [1]
    counter.close()
    await one.writer.aclose()


@pytest.mark.parametrize("picos", [2**62, 2**63, 10**21, 7 * 10**19 + 3])
async def test_amounts_of_any_currency_are_exact_from_the_request_to_the_year(
    tmp_path: Path, any_database: str, picos: int
) -> None:
    """A slot, a row of an hour and a day exceed 63 bits, such as in rupiahs."""
    one = Host(tmp_path / "counts", any_database)
    for hour in range(3):
        counter = counting(one.folder)
        for _ in range(3):
            counter.put(record(at=NOVEMBER + hour * HOUR, picos=picos, cost=Money(picos, "idr")))
        counter.close()
    await one.writer.write()
    assert [(row["picos"], row["requests"]) for row in await one.rows()] == [(9 * picos, 9)]
    one.now += 2 * 86400
    one.writer._summed_at = 0.0
    await one.writer.write()
    store = await one.writer.store()
    day = store.report(UsageQuery(NOVEMBER // HOUR, NOVEMBER // HOUR + 24, ("tenant",), "day"))
    assert [(row["day"], row["picos"], row["requests"]) for row in day] == [("2026-11-01", 9 * picos, 9)]
    await one.writer.aclose()
