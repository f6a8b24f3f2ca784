"""The bench of guards: valid gateways that differ in their guards, and paired differences."""

from pathlib import Path

import pytest
import yaml

from config.loader import load
from loadtests import bench_gateway
from loadtests.gateways import guarded
from loadtests.servers import Site

pytestmark = pytest.mark.plain


@pytest.mark.parametrize("name", guarded.SIDES)
def test_every_gateway_has_a_valid_file_with_its_guard(tmp_path: Path, name: str) -> None:
    file = tmp_path / "headrace.yaml"
    file.write_text(yaml.safe_dump(guarded.written(name, Site(tmp_path, 8080, 9000), 8082)))
    settings = load(file)
    assert [list(guard.on) for guard in settings.guards] == ([guarded.SIDES[name]] if guarded.SIDES[name] else [])
    assert list(settings.models[0].guards) == [guard.name for guard in settings.guards]
    assert [guard.mode for guard in settings.guards] in ([], ["monitor" if "monitored" in name else "enforce"])


def test_the_words_are_a_thousand_and_always_the_same() -> None:
    assert len(set(guarded.words())) == guarded.WORDS
    assert guarded.words() == guarded.words()


def test_differences_are_paired_by_round() -> None:
    """A drift of the machine reaches all gateways of a round alike. Wrong answers have no figures."""
    of = {name: workload.figures[0].name for name, workload in guarded.WORKLOADS.items()}
    accepted = {
        workload: [
            {guarded.target_of(name): {figure: drift + more} for more, name in enumerate(guarded.SIDES)}
            for drift in (100.0, 900.0, 120.0)
        ]
        for workload, figure in of.items()
    }
    for workload in of:
        accepted[workload].append({**accepted[workload][0], guarded.target_of(guarded.OFF): {}})
    for (_, name), (own, more) in guarded.prices(accepted).items():
        place = list(guarded.SIDES).index(name)
        assert (own.median, set(more)) == (120 + place, {place})


def test_the_text_of_a_chunk_is_measured_without_a_gateway() -> None:
    text = guarded.examined(2)
    assert 0 < text.low <= text.median <= text.high


def test_guards_alone_are_measured_on_request() -> None:
    options = bench_gateway.parse(["--guards", "only"])
    assert (options.peers, options.only, options.arms, options.providers, options.guards) == ([], [], "no", "no", "yes")
