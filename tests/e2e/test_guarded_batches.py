"""Lines of a batch pass the guards of their model, as requests of clients do."""

import json
from pathlib import Path

import pytest

from tests.support.batches import answers, batched, chat_line, client, counts, results, submitted, until_ended
from tests.support.processes import gateway
from tests.support.upstreams import upstream

pytestmark = pytest.mark.timeout(900)

GUARDS = [
    {"name": "plans", "kind": "words", "words": ["zebra"], "action": "block", "on": ["prompt"]},
    {"name": "names", "kind": "words", "words": ["there", "okapi"], "action": "mask"},
]


async def test_lines_are_blocked_and_masked(tmp_path: Path) -> None:
    async with upstream("hello there") as up:
        settings = batched(up, tmp_path, guards=GUARDS)
        settings["models"][0]["guards"] = ["plans", "names"]
        lines = [chat_line("plain"), chat_line("blocked", "a Zebra"), chat_line("masked", "an okapi")]
        async with gateway(tmp_path, settings) as g, client(g, await g.key()) as sdk:
            batch = await until_ended(sdk, await submitted(sdk, lines))
            assert (batch.status, batch.request_counts) == ("completed", counts(3, 2, 1))
            (error,) = await results(sdk, batch.error_file_id)
            assert (error["custom_id"], error["response"]["status_code"]) == ("blocked", 400)
            assert error["response"]["body"]["error"]["code"] == "content_filter"
            output = answers(await results(sdk, batch.output_file_id))
            assert output == dict.fromkeys(("plain", "masked"), "hello […]")
        sent = json.dumps(up.received, ensure_ascii=False).lower()
        assert "an […]" in sent
        assert "zebra" not in sent
        assert "okapi" not in sent
