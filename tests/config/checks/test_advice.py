from pathlib import Path

import pytest

from config.loader import read
from tests.config.conftest import RIGHT

TENANT = "models: [chat]"


def warnings(tmp_path: Path, text: str) -> list[str]:
    path = tmp_path / "file.yaml"
    path.write_text(text)
    reading = read(path)
    assert not reading.problems
    return [str(warning).removeprefix(f"{path}:").replace(" warning:", "") for warning in reading.warnings]


def loose(tmp_path: Path, *limits: str) -> list[str]:
    """The limits that never refuse a request, as INDEX.UNIT."""
    written = "".join(f"\n      - {limit}" for limit in limits)
    text = RIGHT.replace(TENANT, f"{TENANT}\n    limits:{written}").replace(
        "name: chat", "name: chat\n    price: {request: 1 usd}"
    )
    reported = warnings(tmp_path, text)
    assert all("never refuses anything" in problem for problem in reported)
    return [problem.split("limits[")[1].split(":")[0].replace("]", "") for problem in reported]


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        (["{requests: 600/min}", "{requests: 700/min, per: key}"], ["1.requests"]),
        (["{requests: 600/min}", "{requests: 600/min, per: user}"], ["1.requests"]),
        (["{requests: 600/min}", "{requests: 500/min, per: key}"], []),
        # A burst of 600 and a burst of 10: either limit may refuse.
        (["{requests: 600/min}", "{requests: 20/s}"], []),
        (["{requests: 10/s}", "{requests: 600/min}"], ["1.requests"]),
        (["{requests: 600/min, per: key}", "{requests: 700/min, per: user}"], []),
        (["{requests: 600/min, models: [chat]}", "{requests: 700/min}"], []),
        (["{requests: 600/min}", "{requests: 700/min, models: [chat]}"], ["1.requests"]),
        (["{requests: 600/min, enforce: shadow}", "{requests: 700/min, per: key}"], []),
        (["{tokens: 1k/min}", "{requests: 2000/min}"], []),
        (["{concurrency: 4}", "{concurrency: 4, per: key}"], ["1.concurrency"]),
        (["{spend: 2 usd/day}", "{spend: 62 usd/month}"], ["1.spend"]),
        (["{spend: 2 usd/day}", "{spend: 61 usd/month}"], []),
        (["{spend: 1 usd/hour}", "{spend: 24 usd/day}"], ["1.spend"]),
        (["{spend: 50 usd/month}", "{spend: 50 usd/day}"], ["1.spend"]),
        (["{spend: 50 usd/month}", "{spend: 49 usd/day}"], []),
    ],
)
def test_limits_that_never_refuse(tmp_path: Path, limits: list[str], expected: list[str]) -> None:
    assert loose(tmp_path, *limits) == expected


def test_a_file_with_an_error_has_no_warnings(tmp_path: Path) -> None:
    path = tmp_path / "file.yaml"
    path.write_text(RIGHT.replace("fallback: [spare]", "fallback: [spar]"))
    assert read(path).problems
    assert not read(path).warnings


def test_routes_know_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "file.yaml"
    path.write_text(RIGHT)
    config = read(path).config
    assert config is not None
    assert (config.line_of(0, 0), config.line_of(0, 1)) == (10, None)
