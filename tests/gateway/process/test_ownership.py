from importlib import metadata
from pathlib import Path

import pytest

from gateway.process.ownership import DISTRIBUTION, ROOMS, foreign_rooms, owners_of_rooms


def test_the_rooms_are_ours_alone() -> None:
    assert foreign_rooms() == []


def test_a_room_that_another_distribution_also_brings_is_named() -> None:
    owners = {room: [DISTRIBUTION] for room in ROOMS} | {"adapters": [DISTRIBUTION, "adapters-hub"]}
    (problem,) = foreign_rooms(owners)
    assert "`adapters`" in problem
    assert "adapters-hub" in problem


def test_the_error_without_an_installation_names_the_remedy() -> None:
    assert all("pip install" in problem for problem in foreign_rooms({}))
    assert len(foreign_rooms({})) == len(ROOMS)


def test_the_gateway_installs_without_torch() -> None:
    required = [r for r in metadata.requires(DISTRIBUTION) or [] if "extra ==" not in r]
    assert not [r for r in required if r.startswith(("torch", "vllm", "numpy"))]


@pytest.mark.parametrize(
    ("file", "content", "rooms"),
    [
        ("top_level.txt", "_hub\nadapters\nconfig\n", {"adapters", "config"}),
        ("top_level.txt", "adapters_hub\nmyconfig\n", set()),
        ("RECORD", "adapters/hub.py,sha256=x,1\nconfig.py,sha256=x,1\nhub/gateway/x.py,,\n", {"adapters", "config"}),
        ("RECORD", "adapters_hub/x.py,sha256=x,1\nmyconfig.py,,\nconfig.pyi,,\n", set()),
        ("INSTALLER", "pip\n", set()),
    ],
)
def test_the_rooms_of_a_distribution(tmp_path: Path, file: str, content: str, rooms: set[str]) -> None:
    folder = tmp_path / "adapters_hub-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: adapters-hub\nVersion: 1.0\n")
    (folder / file).write_text(content)
    assert owners_of_rooms(metadata.distributions(path=[str(tmp_path)])) == {room: ["adapters-hub"] for room in rooms}


def test_the_owners_are_those_of_the_standard_library() -> None:
    everything = metadata.packages_distributions()
    owners = owners_of_rooms(metadata.distributions())
    assert {room: set(names) for room, names in owners.items()} == {room: set(everything[room]) for room in ROOMS}
