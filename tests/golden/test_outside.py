"""The outside is what its files say. A wanted change writes them again: ``python -m tests.golden``."""

import json
import re

import msgspec
import pytest

from adapters.fake import FakeAdapter, Script
from gateway.telemetry.access_log import Line
from tests.golden.outside import FILES, OUTSIDE
from tests.support.doors import REQUESTS, door

CHAT = {
    "id": "c1", "object": "chat.completion", "created": 1, "model": "chat",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "yes"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
}  # fmt: skip
CHANGING = ("time", "duration_ms", "overhead_ms", "first_chunk_ms")


@pytest.mark.parametrize("name", OUTSIDE)
def test_the_outside_is_unchanged(name: str) -> None:
    assert OUTSIDE[name]() == FILES.joinpath(name).read_text(), "if this is wanted: python -m tests.golden"


def test_every_file_is_of_the_outside() -> None:
    assert {path.name for path in FILES.iterdir()} == {*OUTSIDE, "access_log.jsonl", "schemas.txt"}


async def test_the_access_log_has_these_fields_for_each_operation() -> None:
    written = [json.loads(line) for line in FILES.joinpath("access_log.jsonl").read_text().splitlines()]
    chat = Script(chunks=(json.dumps(CHAT).encode(),))
    async with door(FakeAdapter(chat)) as opened:
        for path, body in REQUESTS.items():
            await opened.send(
                "GET" if body is None else "POST", path, body, x_request_id=f"at{re.sub('[:/]', '-', path)}"
            )
        lines = [_steady(line, opened.rig.key.id) for line in opened.rig.log.lines]
    assert lines == written, "\n".join(map(json.dumps, lines))


def _steady(line: Line, key: str) -> dict[str, object]:
    """The fields of a line; what changes with each run is 0, a port is left out."""
    fields = msgspec.to_builtins(line)
    fields |= {name: 0 for name in CHANGING if name in fields}
    return {**fields, "client": fields["client"].partition(":")[0], "key": fields["key"].replace(key, "KEY")}
