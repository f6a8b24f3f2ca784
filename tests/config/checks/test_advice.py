from pathlib import Path

import pytest

from config.loader import read
from tests.config.conftest import RIGHT

TO = "to: vllm"
SPLIT = "split: {{arms: [{{pool: vllm, weight: {}}}, {{pool: spare, weight: {}}}]}}"
TENANT = "models: [chat]"


def warnings(tmp_path: Path, text: str) -> list[str]:
    path = tmp_path / "file.yaml"
    path.write_text(text)
    reading = read(path)
    assert not reading.problems
    return [str(warning).removeprefix(f"{path}:").replace(" warning:", "") for warning in reading.warnings]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (TO, TO, []),
        (
            f"{TO}\n",
            f"{TO}\n      - {TO}\n",
            ["11: models[0].routes[1]: is never reached: routes[0] on line 10 matches all its requests"],
        ),
        (
            TO,
            f"{TO}\n        when: {{stream: true}}\n      - {TO}\n        when: {{stream: true, tenant: [acme]}}",
            ["12: models[0].routes[1]: is never reached: routes[0] on line 10 matches all its requests"],
        ),
        (
            TO,
            f"{TO}\n        when: {{prompt_tokens: '>10'}}\n      - {TO}\n        when: {{prompt_tokens: '>20'}}",
            ["12: models[0].routes[1]: is never reached: routes[0] on line 10 matches all its requests"],
        ),
        (TO, f"{TO}\n        when: {{stream: true}}\n      - {TO}\n        when: {{tenant: [acme]}}", []),
        ("        fallback: [spare]\n", "", ["5: pools[1].name: no route leads here"]),
        (TO, SPLIT.format(1, 0), ["10: models[0].routes[0].split.arms[1].weight: is parked: it receives no request"]),
        (TO, SPLIT.format(90, 10), []),
        (TO, SPLIT.format(3, 1), []),
        (
            TO,
            SPLIT.format(90, 5),
            ["10: models[0].routes[0].split.arms: weights look like percentages and add up to 95"],
        ),
        (TO, SPLIT.format(33.3, 66.6), []),
        (
            "[http://10.0.0.7:8000]",
            "[http://10.0.0.7:8000]\n    outliers: {}\n    breaker: {failures: 2}",
            [
                f"{line}: pools[1].{name}: has no effect while the pool has one endpoint: "
                "the last endpoint is never ejected"
                for line, name in ((7, "outliers"), (8, "breaker"))
            ],
        ),
        (
            "[http://10.0.0.7:8000]",
            "[http://10.0.0.7:8000]\n    resume: text",
            [
                "7: pools[1].resume: has no effect while the pool has one endpoint: another "
                "endpoint would continue the stream",
            ],
        ),
        (
            f"{TO}\n        fallback: [spare]",
            "to: spare\n        hedge: {after: p90}",
            [
                "3: pools[0].name: no route leads here",
                "11: models[0].routes[0].hedge: has no effect while its pools have one endpoint: a hedge goes to "
                "another endpoint of the same pool",
            ],
        ),
        ("10.0.0.6:8000]", "10.0.0.6:8000]\n    outliers: {}\n    breaker: {failures: 2}", []),
        (TENANT, "models: [chat, 'gpt-*']", ["14: tenants[0].models[1]: matches no model"]),
        (
            f"\ntenants:\n  - name: acme\n    {TENANT}",
            f"\n  - {{name: secret, routes: [{{{TO}}}]}}\ntenants:\n  - name: acme\n    {TENANT}",
            ["12: models[1].name: no tenant may use this model, and no pipeline calls it"],
        ),
    ],
)
def test_probable_mistakes_are_reported(tmp_path: Path, old: str, new: str, expected: list[str]) -> None:
    assert old in RIGHT
    assert warnings(tmp_path, RIGHT.replace(old, new, 1)) == expected


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
