from importlib import metadata

from gateway.ownership import DISTRIBUTION, ROOMS, foreign_rooms


def test_the_rooms_are_ours_alone() -> None:
    assert foreign_rooms() == []


def test_a_room_that_another_distribution_also_brings_is_named() -> None:
    owners = {room: [DISTRIBUTION] for room in ROOMS} | {"adapters": [DISTRIBUTION, "adapters-hub"]}
    (problem,) = foreign_rooms(owners)
    assert "`adapters`" in problem
    assert "adapters-hub" in problem


def test_running_without_installing_is_told_how_to_mend_it() -> None:
    assert all("pip install" in problem for problem in foreign_rooms({}))
    assert len(foreign_rooms({})) == len(ROOMS)


def test_the_gateway_installs_without_torch() -> None:
    required = [r for r in metadata.requires(DISTRIBUTION) or [] if "extra ==" not in r]
    assert not [r for r in required if r.startswith(("torch", "vllm", "numpy"))]
