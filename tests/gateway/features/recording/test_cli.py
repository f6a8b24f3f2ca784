"""`headrace record`, `headrace check --traffic` and `headrace replay` on the command line."""

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from adapters.errors import BackendError
from adapters.fake import FakeAdapter, Script
from gateway.process.commands import app
from tests.support.gateways import chat, config
from tests.support.recorded import SECRET, RecordingRig, recorder_of, recording

CLI = CliRunner()
ROLLOUT = {"name": "new", "from": "main", "to": "next", "steps": [{"weight": "20%", "for": "10m"}]}
FILE = {
    "version": 1,
    "pools": [{"name": name, "endpoints": ["http://127.0.0.1:9"]} for name in ("main", "next")],
    "models": [{"name": "chat", "routes": [{"rollout": ROLLOUT}]}],
    "tenants": [{"name": "acme", "models": ["*"]}],
}


@pytest.fixture
def new_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("RECORD_KEY", SECRET)
    monkeypatch.setenv("OTHER_KEY", SECRET[::-1])
    path = tmp_path / "new.yaml"
    path.write_text(yaml.safe_dump(FILE))
    return str(path)


async def recorded(folder: Path, failures: int) -> None:
    scripts = [Script(fault=BackendError("no"))] * failures + [Script()]
    routes = [{"to": "main", "retry": {"attempts": 1}}]
    made = config(record=recording(folder), pools=FILE["pools"], models=[{"name": "chat", "routes": routes}])
    one = RecordingRig(made, {"main": [FakeAdapter(*scripts)], "next": [FakeAdapter()]})
    async with recorder_of(one):
        for _ in range(40):
            await one.send(chat())


@pytest.mark.parametrize(("failures", "shown"), [(4, "10.00% failed"), (0, "fewer than 2.50% failed")])
async def test_the_steps_of_a_rollout_by_recorded_rates(
    failures: int, shown: str, tmp_path: Path, new_file: str
) -> None:
    folder = tmp_path / "traffic"
    await recorded(folder, failures)
    result = CLI.invoke(app, ["check", new_file, "--traffic", str(folder)])
    assert result.exit_code == 0, result.output
    assert shown in result.output
    assert "(40 recorded)" in result.output
    assert "step 20% for 10m sees failures of 2x after" in result.output


async def test_records_are_listed_and_their_key_is_rotated(tmp_path: Path, new_file: str) -> None:
    folder = tmp_path / "traffic"
    await recorded(folder, 0)
    listed = CLI.invoke(app, ["record", "list", str(folder)])
    assert listed.exit_code == 0
    assert "40" in listed.output
    assert "closed" in listed.output
    rotated = CLI.invoke(app, ["record", "rotate", str(folder), "--old-env", "RECORD_KEY", "--new-env", "OTHER_KEY"])
    assert rotated.exit_code == 0, rotated.output
    assert CLI.invoke(app, ["record", "list", str(folder)]).exit_code == 1
    assert CLI.invoke(app, ["record", "list", str(folder), "--key-env", "OTHER_KEY"]).exit_code == 0
    old = CLI.invoke(app, ["replay", str(folder), "--config", new_file])
    assert old.exit_code == 2
    assert "another key" in old.output
    new = CLI.invoke(app, ["replay", str(folder), "--config", new_file, "--record-key-env", "OTHER_KEY", "--json"])
    assert new.exit_code == 0
    # Without a rollout in the record, its first step has 20% of the requests.
    assert 0 < json.loads(new.output)["pool"] < 20


async def test_a_replay_is_shown_as_a_table(tmp_path: Path, new_file: str) -> None:
    folder = tmp_path / "traffic"
    await recorded(folder, 2)
    result = CLI.invoke(app, ["replay", str(folder), "--config", new_file, "--expect", "refused == 0"])
    assert result.exit_code == 0, result.output
    assert "40 recorded requests" in result.output
    assert "pool" in result.output
    unmet = CLI.invoke(app, ["replay", str(folder), "--config", new_file, "--expect", "arm < 1%"])
    assert unmet.exit_code == 1
    assert "expected arm < 1%, got 100%" in unmet.output


def test_unreadable_records_are_errors(tmp_path: Path, new_file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = CLI.invoke(app, ["replay", str(tmp_path), "--config", new_file])
    assert empty.exit_code == 2
    assert "has no records" in empty.output
    wrong = CLI.invoke(app, ["replay", str(tmp_path), "--config", new_file, "--expect", "most <= 1"])
    assert wrong.exit_code == 2
    monkeypatch.delenv("RECORD_KEY")
    missing = CLI.invoke(app, ["replay", str(tmp_path), "--config", new_file])
    assert missing.exit_code == 2
    assert "RECORD_KEY" in missing.output
