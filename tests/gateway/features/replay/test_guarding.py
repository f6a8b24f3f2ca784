"""The replay of guards: the same file changes no verdict, and another file shows what its guards would find."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from rich.console import Console

from adapters.fake import FakeAdapter, Script
from adapters.wire.oip.bodies import HttpPayload
from config.schema.config import Config
from gateway.features.replay.policies import replay_policies
from gateway.features.replay.report import Expectation, Report
from gateway.traffic.fleet.member import FleetError
from tests.support.gateways import chat, config, infer
from tests.support.recorded import POOLS, RecordingRig, recorder_of, recording, records

ATLAS: dict[str, Any] = {"name": "projects", "kind": "words", "words": ["project atlas"], "action": "warn"}
TICKETS: dict[str, Any] = {"name": "tickets", "kind": "pattern", "patterns": ["T-[0-9]{4}"], "action": "warn"}
KEYS: dict[str, Any] = {"name": "keys", "kind": "secrets", "action": "warn"}
FORM: dict[str, Any] = {"name": "form", "kind": "schema", "json_schema": {"type": "object"}, "action": "warn"}
ANSWER = b'{"choices": [{"index": 0, "message": {"role": "assistant", "content": "see T-1234"}}]}'
PROMPTS = ("about project atlas", "about nothing", "the key sk-abcdefghij0123456789XYZ")


def read(folder: Path, *guards: dict[str, Any], **settings: Any) -> Config:
    names = [guard["name"] for guard in guards]
    return config(
        record=recording(folder, **{"answers": True, **settings}),
        pools=POOLS,
        guards=guards,
        models=[{"name": "chat", "guards": names, "routes": [{"to": "main"}]}],
    )


async def recorded(folder: Path, *guards: dict[str, Any], **settings: Any) -> None:
    """Records a request for each prompt."""
    adapters = {"main": [FakeAdapter(*[Script(chunks=(ANSWER,))] * len(PROMPTS))], "spare": [FakeAdapter()]}
    rig = RecordingRig(read(folder, *guards, **settings), adapters)
    async with recorder_of(rig):
        for prompt in PROMPTS:
            await rig.send(chat(messages=[{"role": "user", "content": prompt}]))


def replayed(folder: Path, *guards: dict[str, Any]) -> Report:
    return replay_policies(records(folder, contents=True), read(folder, *guards))


def moves(report: Report) -> dict[tuple[str, str], int]:
    return {(old, new): count for (_, kind, old, new), count in report.moves.items() if kind == "guards"}


@pytest.mark.parametrize("action", ["warn", "block", "mask", "replace"])
@pytest.mark.parametrize("mode", ["enforce", "monitor"])
async def test_the_recorded_file_changes_no_verdict(tmp_path: Path, action: str, mode: str) -> None:
    """Also those of texts that redaction, a mask or a block keeps out of the record."""
    text = {"text": "no"} if action == "replace" else {}
    guards = [{**each, "action": action, "mode": mode, **text} for each in (ATLAS, TICKETS, KEYS)]
    await recorded(tmp_path, *guards)
    assert sum(len(request.entry.guards) for request in records(tmp_path)) >= 3
    report = replayed(tmp_path, *guards)
    assert (report.requests, dict(report.counts)) == (3, {})


async def test_a_new_guard_examines_the_recorded_texts(tmp_path: Path) -> None:
    await recorded(tmp_path)
    report = replayed(tmp_path, ATLAS, {**TICKETS, "mode": "monitor"})
    assert moves(report) == {("", "projects: warn prompt"): 1, ("", "tickets: warn answer, monitor"): 3}
    assert report.counts == {"guards": 3, "changed": 3}
    assert report.as_json()["guards"] == 3
    assert Expectation.parse("guards <= 50%").unmet(report) == "expected guards <= 50%, got 100%"
    console = Console(record=True, width=120)
    report.show(console)
    assert "projects: warn prompt" in console.export_text()


async def test_a_changed_guard_is_compared_with_its_recorded_verdicts(tmp_path: Path) -> None:
    await recorded(tmp_path, {**ATLAS, "mode": "monitor"}, TICKETS)
    stricter = {**ATLAS, "action": "block", "words": ["project atlas", "nothing"]}
    assert moves(replayed(tmp_path, stricter, TICKETS)) == {
        ("projects: warn prompt, monitor", "projects: block prompt"): 1,
        ("", "projects: block prompt"): 1,
    }
    assert moves(replayed(tmp_path, TICKETS)) == {("projects: warn prompt, monitor", ""): 1}
    assert moves(replayed(tmp_path, {**ATLAS, "words": ["another"]}, TICKETS)) == {
        ("projects: warn prompt, monitor", ""): 1
    }


async def test_a_text_that_a_mask_has_removed_counts_as_before(tmp_path: Path) -> None:
    await recorded(tmp_path, {**TICKETS, "action": "mask"})
    report = replayed(tmp_path, {**TICKETS, "action": "block"})
    assert moves(report) == {("tickets: mask answer", "tickets: block answer"): 3}
    assert any("masked or withheld" in note for note in report.notes)


async def test_guards_that_judge_are_named_and_not_called(tmp_path: Path) -> None:
    await recorded(tmp_path)
    report = replayed(tmp_path, FORM)
    assert not report.counts
    assert "Guards that judge have their recorded verdict: form." in report.notes


async def test_texts_that_are_not_recorded_are_counted(tmp_path: Path) -> None:
    await recorded(tmp_path, bodies="digest", answers=False)
    report = replayed(tmp_path, ATLAS)
    assert not report.counts
    assert any(note.startswith("6 texts are not in the record") for note in report.notes)


async def test_tensors_and_exemptions_are_replayed(tmp_path: Path) -> None:
    adapters = {"main": [FakeAdapter(*[Script(chunks=(b'{"outputs": []}',))] * 2)], "spare": [FakeAdapter()]}
    rig = RecordingRig(read(tmp_path), adapters)
    async with recorder_of(rig):
        body = b'{"inputs": [{"name": "x", "datatype": "BYTES", "shape": [1], "data": ["about project atlas"]}]}'
        await rig.send(replace(infer(), payload=HttpPayload(body=body)))
    assert moves(replayed(tmp_path, ATLAS)) == {("", "projects: warn prompt"): 1}
    exempt = {**ATLAS, "exempt": {"roles": ["user"]}}
    assert moves(replayed(tmp_path, exempt)) == {}


async def test_a_guard_that_cannot_be_compiled_is_an_error(tmp_path: Path) -> None:
    words = tmp_path / "words.txt"
    words.write_text("project atlas\n")
    await recorded(tmp_path / "records")
    guard = {"name": "listed", "kind": "words", "file": str(words), "action": "warn"}
    settings = read(tmp_path / "records", guard)
    assert moves(replay_policies(records(tmp_path / "records", contents=True), settings))
    words.unlink()
    with pytest.raises(FleetError, match="the guard listed cannot read its file"):
        replay_policies(records(tmp_path / "records", contents=True), settings)
