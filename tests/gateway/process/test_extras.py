"""The extras that are not installed, and the target of the Makefile that installs them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from config import default_path
from config.installing import installing
from gateway.process.commands import app
from gateway.process.extras import is_installed, missing_extras
from tests.support.gateways import config

REQUIREMENTS = [
    "pydantic>=2.10",
    "pydantic>=2; extra == 'present'",
    "headrace[present,old]; extra == 'nested'",
    "pydantic>=99; extra == 'old'",
    "nothing-of-this-name; extra == 'absent'",
    "pydantic==1.0; extra == 'other'",
    "typer; extra == 'unbounded'",
]


@pytest.mark.parametrize(
    ("extra", "installed"),
    [("present", True), ("unbounded", True), ("nested", False), ("old", False), ("absent", False), ("other", False)],
)
def test_an_extra_is_installed_if_all_of_its_packages_are(extra: str, installed: bool) -> None:
    assert is_installed(extra, REQUIREMENTS) is installed


@pytest.mark.processes
def test_the_metadata_of_the_distribution_are_readable(monkeypatch: pytest.MonkeyPatch) -> None:
    llm = config(
        pools=[{"name": "m", "runtime": {"kind": "llm", "model": "bundled:m"}}],
        models=[{"name": "m", "routes": [{"to": "m"}]}],
        tenants=[{"name": "acme", "models": ["*"]}],
    )
    assert missing_extras(llm) == []
    monkeypatch.setattr("gateway.process.extras.metadata.requires", lambda _: ["nothing-of-this-name; extra == 'llm'"])
    assert missing_extras(llm) == ["llm"]


@pytest.mark.processes
def test_the_command_prints_nothing_where_nothing_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        app(["extras"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == "\n"


@pytest.mark.processes
@pytest.mark.parametrize("missing", ["onnx,pipelines", ""])
def test_make_serve_installs_the_extras_that_the_configuration_needs(tmp_path: Path, missing: str) -> None:
    shutil.copy("Makefile", tmp_path)
    for name in ("pyproject.toml", "constraints.txt"):
        (tmp_path / name).touch()
    (tmp_path / "venv/bin").mkdir(parents=True)
    for name, prints in (("headrace", f'[ "$1" = extras ] && echo "{missing}"'), ("python", ":")):
        program = tmp_path / "venv/bin" / name
        program.write_text(f'#!/bin/bash\necho "{name} $*" >> {tmp_path}/calls\n{prints}\nexit 0\n')
        program.chmod(0o755)
    command = ["make", "serve", "VENV=venv", "ARGS=--config some.yaml", "PIP_ARGS=--more"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, env={"PATH": os.environ["PATH"]})
    pip = "python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --more --editable"
    expected = [f"{pip} .", "headrace extras --config some.yaml"]
    expected += [f"{pip.replace('--quiet ', '')} .[{missing}]"] if missing else []  # it shows its downloads
    assert (tmp_path / "calls").read_text().splitlines() == [*expected, "headrace serve --config some.yaml"]


@pytest.mark.processes
def test_the_command_needs_none_of_the_extras() -> None:
    """A process of its own: another test may have imported the modules that need an extra."""
    example = default_path().parent / "examples/pipelines.yaml"
    program = f"""
import importlib.metadata, sys
sys.modules["numpy"] = None  # an import of it fails
importlib.metadata.requires = lambda _: ["nothing-of-this-name; extra == 'pipelines'"]
from config.loader import read
from gateway.process.commands import app
from pathlib import Path
print(read(Path({str(example)!r})).problems[0])
app(["extras", "--config", {str(example)!r}])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    *problem, extras = done.stdout.splitlines()
    assert installing("pipelines") in "\n".join(problem)
    assert extras == "pipelines"
