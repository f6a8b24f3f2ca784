"""Secrets at any place of generated requests, under generated configurations, are in no file of the recorder."""

import asyncio
import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adapters.fake import FakeAdapter, Script
from adapters.requests import AppRequest, InferRequest, ModelRequest
from adapters.wire.oip.payloads import HttpPayload
from gateway.auth.keys import Principal
from gateway.recording.segments import SegmentReader
from tests.support.gateways import chat, config
from tests.support.recorded import KEY, RecordingRig, recorder_of, recording, records

MARK = "x7Qz9Kp3"
"""A part of every planted secret. No part of a secret may remain."""
SECRETS = (
    f"sk-proj-{MARK}abcdefgh12345678",
    f"hr-a2b3c4d5e6f7-{MARK * 6}",
    f"ghp_{MARK}abcdefghijklmnop1234",
    f"Bearer {MARK}abcdefghijkl",
    f"password={MARK}",
    f"https://user:{MARK}@db.internal/x",
    f"eyJhbGciOiJIUzI1NiJ9.eyJ{MARK}zdWIi.c2ln{MARK}",
    f"-----BEGIN PRIVATE KEY-----\n{MARK}\n{MARK}\n-----END PRIVATE KEY-----",
)
CHOSEN = (f"{MARK}.ann@example.com",)
"""Removed if `redact` has their kind."""
Place = Callable[[str], dict[str, Any]]
PLACES: dict[str, Place] = {
    "content": lambda secret: {"messages": [{"role": "user", "content": f"a {secret} b"}]},
    "part": lambda secret: {"messages": [{"role": "user", "content": [{"type": "text", "text": secret}]}]},
    "user": lambda secret: {"user": secret},
    "metadata": lambda secret: {"metadata": {"note": secret}},
    "name of a field": lambda secret: {"metadata": {secret: "note"}},
    "tool": lambda secret: {"tools": [{"type": "function", "function": {"name": "f", "description": secret}}]},
    "arguments": lambda secret: {"messages": [{"role": "assistant", "content": None, "tool_calls": [
        {"id": "1", "type": "function", "function": {"name": "f", "arguments": json.dumps({"q": secret})}}]}]},
    "nested": lambda secret: {"metadata": {"a": json.dumps({"b": json.dumps([secret])})}},
    "stop": lambda secret: {"stop": [secret]},
    "unfamiliar": lambda secret: {"vendor": {"deep": [[{"x": secret}]]}},
}  # fmt: skip
HEADERS = ("x-note", "x-team", "x-sticky", "authorization", "x-api-key", "cookie", "proxy-authorization")


def stored(folder: Path) -> bytes:
    """The bytes of all files, and of all decrypted frames."""
    raw = b"".join(path.read_bytes() for path in folder.iterdir())
    frames = [frame.content for path in folder.glob("*.segment") for frame in SegmentReader(path, KEY).frames()]
    return raw + b"\0" + b"\0".join(frames)


def answer(text: str, cuts: list[int]) -> Script:
    """A whole answer, or a stream whose events cut the text anywhere."""
    if not cuts:
        return Script((json.dumps({"choices": [{"index": 0, "message": {"content": text}}]}).encode(),))
    edges = [0, *sorted({cut % (len(text) + 1) for cut in cuts}), len(text)]
    pieces = [text[start:end] for start, end in pairwise(edges)]
    events = [{"choices": [{"index": 0, "delta": {"content": piece}}]} for piece in pieces]
    return Script(tuple(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events))


@st.composite
def configurations(draw: st.DrawFn) -> dict[str, Any]:
    bodies = draw(st.sampled_from([True, "digest"]))
    return {
        "bodies": bodies,
        "answers": bodies is True and draw(st.booleans()),
        "redact": ["email", *draw(st.lists(st.sampled_from(["phone", "card", "ip", "json:$.messages[*].content"])))],
        "headers": draw(st.lists(st.sampled_from(["x-note", "x-team", "user-agent"]), unique=True)),
        "exclude": draw(st.sampled_from([[], ["other*"]])),
    }


@st.composite
def models(draw: st.DrawFn) -> list[dict[str, Any]]:
    """A model that reads headers in conditions, in sticky splits, or not at all."""
    arms = [{"pool": "main", "weight": 90}, {"pool": "spare", "weight": 10}]
    sticky = draw(st.sampled_from(["user", "header:x-sticky"]))
    routes: list[dict[str, Any]] = draw(st.lists(st.sampled_from([
        {"when": {"header": {"x-team": "gold*"}}, "to": "spare"},
        {"when": {"prompt_tokens": ">100000"}, "to": "spare"},
    ]), max_size=2))  # fmt: skip
    return [{"name": "chat", "routes": [*routes, {"split": {"sticky": sticky, "arms": arms}}]}]


def requests(secret: str, place: str, *, stream: bool) -> list[ModelRequest]:
    """Requests of each kind with the secret, or one for a stream."""
    if stream:
        return [chat(stream=True, **PLACES[place](secret))]
    tensors = b'{"inputs":[]}' + b"\x00\xff" + secret.encode() + b"\x00"
    return [
        chat(**PLACES[place](secret)),
        chat(f"absent {secret}"),
        InferRequest(model="chat", payload=HttpPayload(body=tensors, header_length=13)),
        AppRequest(model="chat", method="POST", path="/run", query="x=1", content_type="text/plain",
                   body=f"note {secret} end".encode()),
    ]  # fmt: skip


async def recorded(
    folder: Path, record: dict[str, Any], routed: list[dict[str, Any]], secret: str, place: str, cuts: list[int]
) -> int:
    pools = [{"name": name, "endpoints": ["http://127.0.0.1:9"]} for name in ("main", "spare")]
    made = config(record=recording(folder, **record), pools=pools, models=routed)
    script = answer(f"use {secret} now", cuts)
    rig = RecordingRig(made, {name: [FakeAdapter(*[script] * 10)] for name in ("main", "spare")})
    holder = Principal("acme", f"jwt:login:{secret}", frozenset({"user"}), {"team": f"a {secret}"})
    sent = requests(secret, place, stream=bool(cuts))
    async with recorder_of(rig):
        for request in sent:
            await rig.send(request, holder, dict.fromkeys(HEADERS, secret))
    assert rig.recorder.lost.total() == 0
    rig.assert_idle()
    return len(sent)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(
    record=configurations(),
    routed=models(),
    secret=st.sampled_from(SECRETS + CHOSEN),
    place=st.sampled_from(sorted(PLACES)),
    cuts=st.lists(st.integers(0, 500), max_size=12),
)
def test_no_planted_secret_is_in_any_file(
    tmp_path_factory: pytest.TempPathFactory,
    record: dict[str, Any],
    routed: list[dict[str, Any]],
    secret: str,
    place: str,
    cuts: list[int],
) -> None:
    folder = tmp_path_factory.mktemp("traffic")
    count = asyncio.run(recorded(folder, record, routed, secret, place, cuts))
    assert len(records(folder)) == count
    assert MARK.encode() not in stored(folder)


def test_the_search_sees_text_that_is_no_secret(tmp_path: Path) -> None:
    record = {"answers": True, "headers": ["x-note"]}
    asyncio.run(recorded(tmp_path, record, [{"name": "chat", "routes": [{"to": "main"}]}], MARK, "content", []))
    assert stored(tmp_path).count(MARK.encode()) > 6
