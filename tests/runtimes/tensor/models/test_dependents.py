"""Ensembles are loaded after their models, and follow them in and out of service."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from adapters.errors import CallerError, InferenceError, Unavailable
from runtimes.tensor.models.manager import ModelManager
from tests.runtimes.tensor.workshop import CONFIG, Workshop, manager_of, managing, put, used
from tests.support.conditions import until

pytestmark = pytest.mark.plain
OTHER = CONFIG.replace("FP32", "INT32")


def ensemble(root: Path, name: str, *members: str) -> None:
    """A chain of models, from A to B."""
    tensors = ["A", *(f"t{i}" for i in range(1, len(members))), "B"]
    steps = [
        f"{{model: {member}, inputs: {{A: {tensors[i]}}}, outputs: {{B: {tensors[i + 1]}}}}}"
        for i, member in enumerate(members)
    ]
    (root / name / "1").mkdir(parents=True, exist_ok=True)
    (root / name / "model.yaml").write_text(f"{CONFIG}ensemble: {{steps: [{', '.join(steps)}]}}\n")


@pytest.fixture
async def manager(tmp_path: Path, workshop: Workshop) -> AsyncIterator[ModelManager]:
    async with managing(tmp_path, workshop) as manager:
        yield manager


async def state(manager: ModelManager, name: str) -> tuple[str, str]:
    return next((entry.state, entry.reason) for entry in await manager.index() if entry.name == name)


async def test_an_ensemble_brings_its_models(tmp_path: Path, manager: ModelManager, workshop: Workshop) -> None:
    put(tmp_path, "a")
    put(tmp_path, "b")
    ensemble(tmp_path, "e", "a", "b", "a")
    await manager.load("e")
    assert sorted(workshop.loaded) == ["a/1", "b/1"]
    assert {name for name in "abe" if manager.table.is_ready(name)} == set("abe")
    await manager.load("a")
    assert len(workshop.loaded) == 2, "what has not changed is not loaded again"


async def test_all_models_of_a_repository_are_loaded_once(tmp_path: Path, workshop: Workshop) -> None:
    put(tmp_path, "b")
    put(tmp_path, "z")
    ensemble(tmp_path, "a", "z", "outer")
    ensemble(tmp_path, "outer", "b", "z")
    manager = manager_of(tmp_path, workshop, "none")
    assert await manager.start() == {}
    assert sorted(workshop.loaded) == ["b/1", "z/1"]
    assert manager.table.is_ready("a")
    await manager.aclose()


async def test_an_ensemble_reports_the_model_that_cannot_be_loaded(tmp_path: Path, manager: ModelManager) -> None:
    put(tmp_path, "a")
    put(tmp_path, "b", words="fail")
    ensemble(tmp_path, "e", "a", "b")
    with pytest.raises(CallerError, match=r"'e' depends on 'b' in step 1 \(`b`\), which has no loaded version: .*want"):
        await manager.load("e")
    with pytest.raises(Unavailable, match="step 1"):
        await manager.wait_for("e", "", None)
    put(tmp_path, "b")
    await manager.load("b")
    assert manager.table.is_ready("e"), "it comes with its last model"


async def test_an_ensemble_leaves_service_with_its_model_and_returns_with_it(
    tmp_path: Path, manager: ModelManager
) -> None:
    put(tmp_path, "a")
    ensemble(tmp_path, "e", "a")
    ensemble(tmp_path, "outer", "e")
    await manager.load("outer")
    await manager.unload("a")
    await until(lambda: not manager.table.is_usable("outer"))
    assert (await state(manager, "e"))[1] == "it depends on a, which is not in service"
    assert (await state(manager, "outer"))[1] == "it depends on e, which is not in service"
    assert manager.lease("outer", "") is None
    await manager.load("a")
    assert manager.table.is_ready("e")
    assert manager.table.is_ready("outer")


async def test_an_unloaded_ensemble_does_not_return(tmp_path: Path, manager: ModelManager) -> None:
    put(tmp_path, "a")
    ensemble(tmp_path, "e", "a")
    await manager.load("e")
    await manager.unload("e")
    assert manager.table.is_ready("a")
    await manager.unload("a")
    await manager.load("a")
    assert not manager.table.is_ready("e")


async def test_models_that_only_the_ensemble_needs_are_unloaded_with_it(tmp_path: Path, manager: ModelManager) -> None:
    for name in "abcd":
        put(tmp_path, name)
    ensemble(tmp_path, "inner", "a", "b", "d")
    ensemble(tmp_path, "e", "inner", "c")
    ensemble(tmp_path, "other", "d")
    await manager.load("e")
    await manager.load("other")
    await manager.load("c")  # by name
    await manager.unload("e", with_dependents=True)
    assert {name for name in ("a", "b", "c", "d", "inner", "e", "other") if manager.table.is_usable(name)} == {
        "c", "d", "other",
    }  # fmt: skip


async def test_an_ensemble_leaves_service_when_a_model_does_not_fit_any_more(
    tmp_path: Path, manager: ModelManager
) -> None:
    put(tmp_path, "a")
    ensemble(tmp_path, "e", "a")
    await manager.load("e")
    put(tmp_path, "a", config=OTHER)
    await manager.load("a")
    assert "inconsistent data type" in (await state(manager, "e"))[1]
    assert not manager.table.is_ready("e")
    put(tmp_path, "a")
    await manager.load("a")
    assert manager.table.is_ready("e")


async def test_a_changed_model_makes_a_new_ensemble_and_requests_of_the_old_one_end(
    tmp_path: Path, manager: ModelManager
) -> None:
    put(tmp_path, "a")
    ensemble(tmp_path, "e", "a")
    await manager.load("e")
    old = used(manager, "e")
    put(tmp_path, "a", words="fine again")
    await manager.load("a")
    new = used(manager, "e")
    assert new is not old
    old.release()
    new.release()


async def test_ensembles_of_each_other_are_refused(tmp_path: Path, manager: ModelManager) -> None:
    ensemble(tmp_path, "x", "y")
    ensemble(tmp_path, "y", "z")
    ensemble(tmp_path, "z", "x")
    with pytest.raises(CallerError, match="circular dependency between ensembles: "):
        async with asyncio.timeout(300):
            await manager.load("x")
    ensemble(tmp_path, "self", "self")
    with pytest.raises(CallerError, match="circular dependency between ensembles: self -> self"):
        await manager.load("self")
    put(tmp_path, "a")
    ensemble(tmp_path, "z", "a")
    await manager.load("x")
    assert manager.table.is_ready("x")


async def test_circles_at_the_start_end_at_once(tmp_path: Path, workshop: Workshop) -> None:
    put(tmp_path, "a")
    for name, members in {"x": "yz", "y": "xa", "z": "xy", "good": "a"}.items():
        ensemble(tmp_path, name, *members)
    manager = manager_of(tmp_path, workshop, "none")
    async with asyncio.timeout(300):
        failed = await manager.start()
    assert failed.keys() == {"x", "y", "z"}
    assert manager.table.is_ready("good")
    await manager.aclose()


async def test_a_cancelled_member_fails_the_load(tmp_path: Path, manager: ModelManager, workshop: Workshop) -> None:
    put(tmp_path, "a", words="hang")
    ensemble(tmp_path, "e", "a")
    loading = asyncio.create_task(manager.load("e"))
    await until(lambda: workshop.hanging == 1)
    await manager.unload("a")
    with pytest.raises(InferenceError, match="depends on 'a'"):
        await loading


async def test_a_polled_repository_follows(tmp_path: Path, workshop: Workshop) -> None:
    put(tmp_path, "a")
    ensemble(tmp_path, "e", "a")
    async with managing(tmp_path, workshop, "poll", poll_seconds=0.01) as manager:
        await until(lambda: manager.table.is_usable("e"))
        (tmp_path / "a").rename(tmp_path / ".a")
        await until(lambda: not manager.table.is_usable("e"))
        (tmp_path / ".a").rename(tmp_path / "a")
        await until(lambda: manager.table.is_usable("e"))


@pytest.mark.parametrize("seed", range(12))
async def test_ensembles_follow_any_sequence_of_loads(tmp_path: Path, workshop: Workshop, seed: int) -> None:
    """A desired ensemble is in service if, and only if, all of its models are, and fit."""
    rng = random.Random(seed)
    manager = manager_of(tmp_path, workshop)
    members = {"e": ("a", "b"), "f": ("b",), "outer": ("e", "f", "a")}
    for name in "ab":
        put(tmp_path, name)
    for name, of in members.items():
        ensemble(tmp_path, name, *of)
    await manager.start()
    desired: set[str] = set()
    for step in range(40):
        name = rng.choice(["a", "b", *members])
        if name in "ab" and rng.random() < 0.5:
            put(
                tmp_path,
                name,
                words=rng.choice(["fine", "fine", "fail", f"other {step}"]),
                config=rng.choice([CONFIG, OTHER]),
            )
        if rng.random() < 0.7:
            with suppress(InferenceError):
                await manager.load(name)
            desired |= brought(name, members)
        else:
            await manager.unload(name, with_dependents=rng.random() < 0.3)
            desired = {one for one in desired if one != name}
        desired = {one for one in desired if one in manager._dependents._ensembles}
        for one in desired:
            expected = all(fits(manager, member) for member in members[one])
            assert manager.table.is_usable(one) == expected, (step, name, one)
        for one in members.keys() - desired:
            assert not manager.table.is_usable(one), (step, name, one)
    await manager.aclose()
    assert workshop.open == []


def brought(name: str, members: dict[str, tuple[str, ...]]) -> set[str]:
    """The ensembles that a load brings."""
    inner = [brought(member, members) for member in members.get(name, ())]
    return set().union(*inner, {name} if name in members else set())


def fits(manager: ModelManager, member: str) -> bool:
    if not manager.table.is_usable(member):
        return False
    return manager.table.describe(member)[1].inputs[0].datatype == "FP32"
