"""The rule that keeps runtimes away from the gateway's side of `adapters` names every module that there is."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
OPEN = {
    "assembly",
    "cut",
    "types",
    "dataflow",
    "ignored_fields",
    "errors",
    "grpc_health",
    "native",
    "tensors",
    "wire",
    "http1",
    "http2",
    "offload",
    "process",
    "paths",
    "reason",
    "requests",
    "spans",
    "statuses",
    "stores",
}
"""The parts that runtimes may import."""


def test_no_module_is_forgotten() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (forbidden,) = [one["forbidden_modules"] for one in contracts if one.get("source_modules") == ["runtimes"]]
    there = {
        path.stem for path in (ROOT / "adapters").iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    assert {name for name in forbidden if name.startswith("adapters.")} == {
        f"adapters.{name}" for name in there - OPEN - {"__init__"}
    }
