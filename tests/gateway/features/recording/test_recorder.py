"""The recorder: a record of each sampled request, without secrets, bounded, and never in the way of requests."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from adapters.errors import BackendError
from adapters.fake import FakeAdapter, Script
from adapters.requests import InferRequest
from adapters.wire.oip.bodies import HttpPayload
from gateway.auth.keys import Principal
from gateway.features.recording import recorder as module
from gateway.features.recording import segments
from gateway.features.recording.entries import RecordEntry
from gateway.features.recording.metrics import RecordMetrics
from gateway.features.recording.policy import subject_of
from gateway.features.recording.recorder import TrafficRecorder
from gateway.features.recording.segments import SegmentReader
from tests.support.gateways import chat
from tests.support.recorded import KEY, RecordingRig, recorded_config, recorder_of, recorder_rig, recording, records
from tests.support.waiting import until


def everything(where: Path) -> bytes:
    """All bytes of a folder, and all decrypted frames."""
    raw = b"".join(path.read_bytes() for path in where.iterdir())
    frames = [frame.content for path in sorted(where.glob("*.segment")) for frame in SegmentReader(path, KEY).frames()]
    return raw + b"".join(frames)


@pytest.mark.realtime
async def test_a_record_has_the_request_the_decision_and_the_end(tmp_path: Path) -> None:
    one = recorder_rig(tmp_path, answers=True)
    async with recorder_of(one):
        await one.send(chat(max_tokens=50, user="ann", tools=[{"type": "function", "function": {"name": "f"}}]))
    ((entry, holder, policy, content),) = records(tmp_path, contents=True)
    assert (holder.tenant, holder.key) == ("acme", one.key.id)
    assert (entry.id, entry.model, entry.configured, entry.operation) == ("req-1", "chat", "chat", "chat")
    assert (entry.route, entry.arm, entry.pools, entry.pool) == (0, None, ("main", "spare"), "main")
    assert (entry.endpoint, entry.attempts, entry.status, entry.error) == ("main/0", ("main/0",), 200, "")
    assert (entry.max_tokens, entry.features, entry.stream) == (50, 1, False)
    assert entry.usage is not None
    assert entry.cost == (3 * 10**6 + 2 * 2 * 10**6, "usd")
    assert entry.reproduces
    assert abs(entry.arrival / 1e9 - policy.started) < 60
    assert entry.first_byte is not None
    assert 0 <= entry.first_byte <= entry.end
    assert content is not None
    assert content.path == "/v1/chat/completions"
    assert json.loads(content.body)["messages"] == [{"role": "user", "content": "hello"}]
    assert content.answer == b"data: {}\n\ndata: [DONE]\n\n"
    one.assert_idle()


async def test_refusals_and_failures_are_recorded(tmp_path: Path) -> None:
    failing = FakeAdapter(Script(fault=BackendError("no")))
    one = recorder_rig(tmp_path, failing)
    async with recorder_of(one):
        await one.send(chat("nothing"))
        await one.send(chat())
    refused, failed = (request.entry for request in records(tmp_path))
    assert (refused.code, refused.route, refused.pools) == ("model_not_found", -1, ())
    assert (failed.status, failed.pool, failed.pools) == (200, "spare", ("main", "spare"))
    assert failed.attempts[-1] == "spare/0"


PLANTED = "planted-" + "x7" * 12
KEY_LIKE = "sk-" + PLANTED


async def test_no_secret_is_in_the_records(tmp_path: Path) -> None:
    script = Script(tuple(
        b"data: " + json.dumps({"choices": [{"index": 0, "delta": {"content": piece}}]}).encode() + b"\n\n"
        for piece in ("mail to pla", "nted.ann@exam", "ple.com or use sk-", *PLANTED)
    ))  # fmt: skip
    one = recorder_rig(
        tmp_path, FakeAdapter(script), answers=True, redact=["email", "json:$.metadata.team"], headers=["x-note"]
    )
    nested = json.dumps({"to": "planted.bob@example.com", "more": json.dumps({"key": KEY_LIKE})})
    body: dict[str, Any] = {
        "metadata": {"team": "planted-team"},
        "user": "planted.user@example.com",
        "tools": [{"type": "function", "function": {"name": "f", "description": nested}}],
    }
    headers = {
        "authorization": f"Bearer {one.key.plaintext}", "x-api-key": KEY_LIKE, "cookie": f"session={PLANTED}",
        "x-note": f"{KEY_LIKE} planted.note@example.com",
    }  # fmt: skip
    async with recorder_of(one):
        await one.send(chat(stream=True, **body), headers=headers)
        await one.send(chat(f"no-such-{KEY_LIKE}"))
        tensors = b'{"inputs":[]}' + b"\x00planted.bin@example.com " + KEY_LIKE.encode()
        await one.send(InferRequest(model="chat", payload=HttpPayload(body=tensors, header_length=13)))
    stored = everything(tmp_path)
    assert b"planted" not in stored.lower()
    assert PLANTED.encode() not in stored
    assert one.key.plaintext.encode() not in stored
    assert one.key.plaintext[-43:].encode() not in stored
    contents = [request.content for request in records(tmp_path, contents=True)]
    first = contents[0]
    assert first is not None
    assert first.redacted
    assert first.answer is not None
    assert "[email] or use [secret]" in json.loads(first.answer)["texts"]["0.content"]
    assert contents[2] is not None
    assert len(contents[2].body) == len(tensors)


async def test_digests_in_place_of_bodies(tmp_path: Path) -> None:
    one = recorder_rig(tmp_path, bodies="digest")
    async with recorder_of(one):
        for _ in range(2):
            await one.send(chat(messages=[{"role": "user", "content": "a private prompt"}], user="ann"))
        await one.send(chat())
    same, again, other = (request.content for request in records(tmp_path, contents=True))
    assert same is not None
    assert again is not None
    assert other is not None
    assert same.body == b""
    assert same.digest == again.digest != other.digest
    assert b"private" not in everything(tmp_path)
    assert b"ann" not in everything(tmp_path)


async def test_users_have_stand_ins_that_get_the_same_arms(tmp_path: Path) -> None:
    one = recorder_rig(tmp_path)
    users = [f"user-{i}" for i in range(40)]
    async with recorder_of(one):
        for user in (*users, *users):
            await one.send(chat("split", user=user))
    entries = [request.entry for request in records(tmp_path)]
    assert {entry.arm for entry in entries} == {"main", "spare"}
    assert all(entry.reproduces for entry in entries)
    assert [subject_of(entry.user) for entry in entries[:40]] == [subject_of(entry.user) for entry in entries[40:]]
    assert len({subject_of(entry.user) for entry in entries}) == 40
    assert b"user-1" not in everything(tmp_path)


async def test_random_choices_are_recorded(tmp_path: Path) -> None:
    one = recorder_rig(tmp_path)
    async with recorder_of(one):
        for _ in range(40):
            await one.send(chat("dice"))
    entries = [request.entry for request in records(tmp_path)]
    assert {entry.arm for entry in entries} == {"main", "spare"}
    assert all(entry.reproduces and len(entry.draws) == 1 for entry in entries)


async def test_the_share_is_sampled_by_a_keyed_digest(tmp_path: Path) -> None:
    one = recorder_rig(tmp_path, share="25%")
    async with recorder_of(one):
        for _ in range(400):
            await one.send(chat())
    ids = {request.entry.id for request in records(tmp_path)}
    assert 60 < len(ids) < 140
    sample = one.recorder.sample
    assert ids == {f"req-{i}" for i in range(1, 401) if sample.has(f"req-{i}")}


async def test_excluded_models_are_not_recorded(tmp_path: Path) -> None:
    one = recorder_rig(tmp_path, exclude=["cha*"])
    async with recorder_of(one):
        await one.send(chat())
        await one.send(chat("dice"))
    assert [request.entry.model for request in records(tmp_path)] == ["dice"]


async def test_a_full_queue_loses_records_and_counts_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_WAITING", 3)
    one = recorder_rig(tmp_path)
    for _ in range(10):
        await one.send(chat())
    assert one.recorder.lost["queue"] == 7
    async with recorder_of(one):
        pass
    assert len(records(tmp_path)) == 3
    monkeypatch.setattr(module, "MOST_WAITING_BYTES", 10)
    await one.send(chat())
    assert one.recorder.lost["queue"] == 8
    one.assert_idle()


async def test_an_unwritable_folder_costs_records_and_no_request(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FLUSH_SECONDS", 0.02)
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.0)
    blocked = tmp_path / "records"
    blocked.write_text("a file")
    one = recorder_rig(blocked)
    async with recorder_of(one):
        for number in range(1, 4):
            assert (await one.send(chat())).status == 200
            await until(lambda number=number: one.recorder.lost["disk"] == number)
        assert len([r for r in caplog.records if "records are lost" in r.message]) == 1
        blocked.unlink()
        await one.send(chat())
        await until(lambda: one.recorder.written["records"] == 1)
    assert len([r for r in caplog.records if "written again; 3 were lost" in r.message]) == 1
    assert len(records(blocked)) == 1
    (counters,) = [{f.name: sum(s.value for s in f.samples if s.name.endswith("_total")) for f in made} for made in
                   [list(RecordMetrics(one.recorder).collect())]]  # fmt: skip
    assert counters["headrace_records"] == 1
    assert counters["headrace_records_lost"] == 3
    assert counters["headrace_record_bytes"] > 100


@pytest.mark.processes
async def test_a_large_body_is_redacted_elsewhere(tmp_path: Path) -> None:
    one = recorder_rig(tmp_path, redact=["email"])
    text = "word " * 60_000 + "ann@example.com"
    async with recorder_of(one):
        await one.send(chat(messages=[{"role": "user", "content": text}]))
    ((_, _, _, content),) = records(tmp_path, contents=True)
    assert content is not None
    assert json.loads(content.body)["messages"][0]["content"] == text.replace("ann@example.com", "[email]")


async def test_a_new_policy_begins_a_segment(tmp_path: Path) -> None:
    one = recorder_rig(tmp_path)
    async with recorder_of(one):
        await one.send(chat())
        await until(lambda: one.recorder.written["records"] == 1)
        one.recorder.configure(one.core.snapshot.config)
        await one.send(chat())
    assert len(segments.segments(tmp_path)) == 2
    assert len(records(tmp_path)) == 2


async def test_two_processes_write_to_one_folder(tmp_path: Path) -> None:
    one, two = recorder_rig(tmp_path), recorder_rig(tmp_path)
    async with recorder_of(one), recorder_of(two):
        await asyncio.gather(*(each.send(chat()) for each in (one, two) for _ in range(5)))
    assert len(records(tmp_path)) == 10


async def test_a_client_that_leaves_is_recorded(tmp_path: Path) -> None:
    one = recorder_rig(tmp_path, answers=True)
    async with recorder_of(one):
        record = one.record()
        answer = await one.core.handle(one.principal, chat(stream=True), {}, record)
        await anext(answer)
        await answer.aclose()
    ((entry, _, _, content),) = records(tmp_path, contents=True)
    assert (entry.status, entry.error) == (499, "cancelled")
    assert content is not None
    assert content.truncated
    one.assert_idle()


async def test_without_a_share_nothing_is_noted(tmp_path: Path) -> None:
    made = recorded_config(tmp_path)
    one = RecordingRig(made, {"main": [FakeAdapter()]})
    one.core.watchers = ()
    record = await one.send(chat())
    assert record.draft is None


def test_entries_of_a_later_version_are_read() -> None:
    from gateway.features.recording.entries import decode, encode

    entry = decode(encode(RecordEntry(1, "a", 0, 5, "chat")), list[Any])
    assert decode(encode_list([*entry, "a new field"]), RecordEntry).id == "a"
    assert decode(encode_list(entry[:5]), RecordEntry) == RecordEntry(1, "a", 0, 5, "chat")


def encode_list(values: list[Any]) -> bytes:
    import msgspec

    return msgspec.msgpack.encode(values)


async def test_keys_of_clients_are_facts_without_their_secret(tmp_path: Path) -> None:
    one = recorder_rig(tmp_path)
    holder = Principal("acme", "jwt:login:ann", frozenset({"user", "team"}), {"team": "search"})
    async with recorder_of(one):
        await one.send(chat(), holder)
    ((_, stored, _, _),) = records(tmp_path)
    assert stored.roles == ("team", "user")
    assert stored.labels == {"team": "search"}


def test_a_recorder_needs_no_folder_to_start(tmp_path: Path) -> None:
    TrafficRecorder(recording(tmp_path / "a" / "b"))
    assert not (tmp_path / "a").exists()
