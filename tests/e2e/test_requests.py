"""The records of the requests of a real gateway with two workers."""

from pathlib import Path

from tests.support.processes import gateway
from tests.support.request_records import configuration, search, until_stored
from tests.support.upstreams import upstream
from tests.support.usage import ask


async def test_a_request_is_stored_with_its_timeline(tmp_path: Path) -> None:
    async with upstream() as up, gateway(tmp_path, configuration(up.url, 2)) as g:
        key = await g.key()
        assert await ask(g, key, 50) == 40
        rows = await until_stored(g, 50)
        assert len(rows) == 50
        refused = await until_stored(g, 10, status="429", error="capacity")
        assert len(refused) == 10
        assert all("endpoint" not in row for row in refused)
        answered = next(row for row in rows if row["status"] == 200)
        shown = await search(g, f"/{answered['id']}")
        assert shown["decision"]["name"] == "rest"
        assert shown["decision"]["pools"] == ["main"]
        assert shown["decision"]["when"] == "every request"
        assert [attempt["endpoint"].startswith("main/") for attempt in shown["attempts"]] == [True]
        assert shown["attempts"][0]["at_ms"] <= shown["first_chunk_ms"] <= shown["duration_ms"]
        assert (shown["prompt_tokens"], shown["completion_tokens"], shown["cost"]) == (5, 7, "0.000026")
        body = await search(g, totals="true", status="200")
        assert [(each["requests"], each["cost"]) for each in body["totals"]["sums"]] == [(40, "0.00104")]
