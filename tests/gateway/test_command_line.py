import json
from pathlib import Path

from typer.testing import CliRunner

from gateway.__main__ import app

run = CliRunner().invoke


def test_check_prints_every_error_and_exits_1(tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(
        "version: 1\n"
        "pools:\n  - {name: a, endpoints: [http://127.0.0.1:9], connect_timeout: 5}\n"
        "models:\n  - {name: chat, routes: [{too: a}]}\n"
        "tenants:\n  - {name: acme, models: [chta]}\n"
    )
    result = run(app, ["check", str(path)])
    assert result.exit_code == 1
    for expected in ("wrong.yaml:3", "10s", "wrong.yaml:5", '"to"', "wrong.yaml:7", '"chat"'):
        assert expected in result.output, result.output


def test_check_says_ok(tmp_path: Path) -> None:
    assert run(app, ["check", "config/headrace.yaml"]).exit_code == 0


def test_check_of_a_file_that_is_not_there() -> None:
    result = run(app, ["check", "nowhere.yaml"])
    assert result.exit_code == 1
    assert "Traceback" not in result.output


def test_schema_is_json_schema() -> None:
    schema = json.loads(run(app, ["schema"]).output)
    assert schema["properties"]["pools"]["type"] == "array"


def test_every_command_has_help() -> None:
    for arguments in ([], ["serve"], ["check"], ["schema"], ["keys"], ["keys", "create"]):
        result = run(app, [*arguments, "--help"])
        assert result.exit_code == 0
        assert "Usage" in result.output
