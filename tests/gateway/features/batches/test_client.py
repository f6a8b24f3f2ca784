"""A server that answers anything to `headrace batch run`: each line has one result, and the others go on."""

import asyncio
import json
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from gateway.features.batches.client.cli import RemoteBatches, RemoteError
from gateway.features.batches.client.run import LineSender, OutputFile, RunProgress
from gateway.features.batches.client.sources import InputLine
from tests.support.bad_answers import BODIES, VALUES

ANSWERS = [*BODIES, *(b'{"a":%b}' % value for value in VALUES)]


async def answer(request: web.Request) -> web.Response:
    if request.method == "GET":
        return web.Response(body=ANSWERS[int(request.path.rpartition("/")[2])], content_type="application/json")
    number = (await request.json())["number"]
    body = b'{"good": true}' if number < 0 else ANSWERS[number]
    return web.Response(body=body, headers={"retry-after": "\N{SUPERSCRIPT TWO}", "content-type": "application/json"})


async def test_any_answer_is_one_result_and_the_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    numbers = [*range(len(ANSWERS)), *range(-20, 0)]
    lines = [InputLine(f"c{number}", "/v1/x", {"number": number}) for number in numbers]
    try:
        async with aiohttp.ClientSession() as http, asyncio.timeout(3600):
            with OutputFile(tmp_path / "out.jsonl", resume=False) as output:
                progress = RunProgress(len(lines), 0, {}, 0.0)
                await LineSender(http, url, output, progress).send(iter(lines), 4, lambda: None)
            for number in range(len(ANSWERS)):
                try:
                    assert isinstance(await RemoteBatches(http, url).status(str(number)), dict)
                except RemoteError:
                    continue
    finally:
        await runner.cleanup()
    results = [json.loads(line) for line in (tmp_path / "out.jsonl").read_bytes().splitlines()]
    assert sorted(result["custom_id"] for result in results) == sorted(line.custom_id for line in lines)
    good = [each for each in results if each["custom_id"].startswith("c-")]
    assert [each["response"]["body"] for each in good] == [{"good": True}] * 20
