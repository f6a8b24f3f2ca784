"""docs/switching.md: the files that the page shows after an import are its results."""

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from gateway.process.commands import app

TEXT = Path("docs/switching.md").read_text()
BEFORE = dict(re.findall(r"`([\w-]+\.(?:yaml|json))`:\n\n```text\n(.*?)```", TEXT, re.DOTALL))
AFTER = re.findall(r"without its comments:\n\n```yaml\n(.*?)```", TEXT, re.DOTALL)


@pytest.mark.parametrize(
    ("source", "options", "shown"),
    [("config.yaml", ["litellm"], AFTER[0]), ("config.json", ["portkey", "--model", "assistant"], AFTER[1])],
    ids=["LiteLLM", "Portkey"],
)
def test_the_page_shows_the_result_of_each_import(
    source: str, options: Sequence[str], shown: str, tmp_path: Path
) -> None:
    file = tmp_path / source
    file.write_text(BEFORE[source])
    kind, *rest = options
    result = CliRunner().invoke(app, ["import", kind, str(file), *rest, "--output", str(tmp_path / "made.yaml")])
    assert result.exit_code == 0, result.output
    assert yaml.safe_load((tmp_path / "made.yaml").read_text()) == yaml.safe_load(shown)
