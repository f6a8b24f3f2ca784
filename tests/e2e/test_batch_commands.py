"""`headrace batch` against a real gateway."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from adapters.http1.message import Response
from tests.support.batches import batched, chat_line, jsonl
from tests.support.processes import command, gateway
from tests.support.upstreams import upstream, whole

pytestmark = pytest.mark.timeout(1800)


def answers(path: Path) -> dict[str, Any]:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert len({line["custom_id"] for line in lines}) == len(lines)
    return {line["custom_id"]: line["response"] for line in lines}


async def test_a_run_continues_after_a_stop_and_reports_its_cost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_bytes(jsonl([chat_line(str(i), f"text {i}") for i in range(30)]))
    async with upstream() as up, gateway(tmp_path, batched(up, tmp_path)) as g:
        monkeypatch.setenv("HEADRACE_API_KEY", await g.key())

        async def echo(body: dict[str, Any]) -> Response:
            content = body["messages"][0]["content"]
            return Response(400, [], b'{"error": {"message": "no"}}') if content in refused else whole(content)

        refused = {"text 3", "text 4"}
        up.behaviour = echo
        run = ("batch", "run", "-i", str(source), "-o", str(target), "--against", g.url, "-c", str(g.config))
        code, _, status = await command(*run)
        assert (code, "30/30 lines, 2 failed" in status) == (1, True), status
        assert "0.000266 usd" in status  # 28 answers of 5 and 7 tokens, at half of the price
        code, _, status = await command(*run)
        assert (code, "--resume" in status) == (2, True)
        with target.open("ab") as file:
            file.write(b'{"torn')
        refused.clear()
        received = len(up.received)
        code, _, status = await command(*run, "--resume")
        assert (code, "30/30 lines, 0 failed" in status) == (0, True), status
        assert len(up.received) == received + 2
        contents = {i: made["body"]["choices"][0]["message"]["content"] for i, made in answers(target).items()}
        assert contents == {str(i): f"text {i}" for i in range(30)}


async def test_rows_of_tables_become_prompts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"name": f"n{i}", "text": f"a, {i}", "most": i + 1} for i in range(5)]
    comma = tmp_path / "in.csv"
    comma.write_text("name,text,most\n" + "".join(f'{r["name"]},"{r["text"]}",{r["most"]}\n' for r in rows))
    columns = tmp_path / "in.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), columns)
    async with upstream() as up, gateway(tmp_path, batched(up, tmp_path)) as g:
        monkeypatch.setenv("HEADRACE_API_KEY", await g.key())
        for source in (comma, columns):
            up.received.clear()
            target = source.with_suffix(f"{source.suffix}.jsonl")
            code, _, status = await command(
                "batch", "run", "-i", str(source), "-o", str(target), "--against", g.url, "--model", "chat",
                "--prompt", "Say {text}!", "--system", "Be {name}.", "--id", "name", "--map", "max_tokens=most",
            )  # fmt: skip
            assert code == 0, status
            assert answers(target).keys() == {row["name"] for row in rows}
            sent = sorted(up.received, key=lambda body: int(body["max_tokens"]))
            contents = [[message["content"] for message in body["messages"]] for body in sent]
            assert contents == [[f"Be {row['name']}.", f"Say {row['text']}!"] for row in rows]
            assert [body["max_tokens"] for body in sent] == [row["most"] for row in rows]
        code, _, status = await command("batch", "run", "-i", str(comma), "-o", str(tmp_path / "x"), "--prompt", "{no}",
                                        "--model", "chat")  # fmt: skip
        assert (code, "the columns are name, text, most" in status) == (2, True)


async def test_a_gateway_runs_a_submitted_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_bytes(jsonl([chat_line("a"), b"{", chat_line("b")]))
    async with upstream("Hi!") as up, gateway(tmp_path, batched(up, tmp_path)) as g:
        monkeypatch.setenv("HEADRACE_API_KEY", await g.key())
        code, out, _ = await command("batch", "submit", "-i", str(source), "--against", g.url)
        assert code == 0
        id_ = json.loads(out)["id"]
        async with asyncio.timeout(300):
            while True:
                _, out, _ = await command("batch", "status", id_, "--against", g.url)
                if json.loads(out)["status"] == "completed":
                    break
        _, out, _ = await command("batch", "status", "--against", g.url)
        assert out.split()[:3] == [id_, "completed", "3/3"]
        code, _, _ = await command("batch", "fetch", id_, "-o", str(target), "--against", g.url)
        assert (code, set(answers(target))) == (1, {"a", "b"})
        assert json.loads((tmp_path / "out.jsonl.errors").read_text())["error"]["line"] == 2
        code, _, status = await command("batch", "cancel", id_, "--against", g.url)
        assert (code, "completed cannot be cancelled" in status) == (1, True)
        code, _, status = await command("batch", "status", "none", "--against", g.url)
        assert (code, "No batch" in status) == (1, True)
        code, _, status = await command("batch", "status", "none", "--against", "http://127.0.0.1:9")
        assert (code, "127.0.0.1:9" in status) == (1, True)
