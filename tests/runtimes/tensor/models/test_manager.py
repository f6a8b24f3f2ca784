"""Models are added, changed, removed and fail, and every request meanwhile gets the promised answer."""

import asyncio
import json
import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from adapters.errors import CallerError, NotFound, Unavailable
from runtimes.tensor.models.manager import ModelManager
from runtimes.tensor.models.overrides import Override, unpack
from runtimes.tensor.models.repository import RepositoryError
from tests.runtimes.tensor.workshop import CONFIG, WARMED, Workshop, manager_of, managing, put, scheduler_of, used
from tests.support.conditions import until

pytestmark = pytest.mark.plain


@pytest.fixture
async def manager(tmp_path: Path, workshop: Workshop) -> AsyncIterator[ModelManager]:
    async with managing(tmp_path, workshop) as manager:
        yield manager


def version_of(manager: ModelManager, name: str = "m", version: str = "") -> str:
    served = used(manager, name, version)
    served.release()
    return served.version


async def states(manager: ModelManager) -> list[tuple[str, str, str, str]]:
    return [(entry.name, entry.version, entry.state, entry.reason) for entry in await manager.index()]


# ── modes ─────────────────────────────────────────────────────────────────────────────────────────────


async def test_without_a_mode_all_models_are_loaded_and_orders_are_refused(tmp_path: Path, workshop: Workshop) -> None:
    put(tmp_path, "a")
    put(tmp_path, "b", words="fail")
    manager = manager_of(tmp_path, workshop, "none")
    failed = await manager.start()
    try:
        assert version_of(manager, "a") == "1"
        assert failed == {"b": "The model `b` cannot be loaded: version 1: it does not want to"}
        assert await states(manager) == [
            ("a", "1", "READY", ""),
            ("b", "1", "UNAVAILABLE", "cannot be loaded: it does not want to"),
        ]
        for order in (manager.load("a"), manager.unload("a")):
            with pytest.raises(CallerError, match="its mode is none, not explicit"):
                await order
    finally:
        await manager.aclose()


async def test_explicit_loads_named_and_ordered_models(tmp_path: Path, workshop: Workshop) -> None:
    for name in "abc":
        put(tmp_path, name)
    manager = manager_of(tmp_path, workshop, models=("a", "none"))
    failed = await manager.start()
    try:
        assert list(failed) == ["none"]
        assert workshop.loaded == ["a/1"]
        await manager.load("c")
        assert version_of(manager, "c") == "1"
        assert await states(manager) == [("a", "1", "READY", ""), ("b", "", "", ""), ("c", "1", "READY", "")]
        assert [entry.name for entry in await manager.index(ready=True)] == ["a", "c"]
    finally:
        await manager.aclose()


# ── lookup ────────────────────────────────────────────────────────────────────────────────────────────


async def test_versions_labels_and_the_default(tmp_path: Path, manager: ModelManager) -> None:
    for number in (1, 2, 10):
        put(tmp_path, "m", number, config=CONFIG + "versions: {latest: 2}\nlabels: {stable: 1}\n")
    await manager.load("m")
    assert [version_of(manager, "m", requested) for requested in ("", "1", "2", "10", "stable")] == [
        "10",
        "1",
        "2",
        "10",
        "1",
    ]
    assert manager.table.versions("m") == ["1", "2", "10"]
    assert manager.lease("m", "3") is None
    with pytest.raises(NotFound, match=r"'m' version 3 is not found\. It has versions 1, 2, 10, stable"):
        await manager.wait_for("m", "3", None)
    with pytest.raises(NotFound, match="'m' version canary is not found"):
        await manager.wait_for("m", "canary", None)
    served = await manager.wait_for("m", "0010", None)
    assert (served.version, served.leases) == ("10", 1)
    version, config = manager.table.describe("m", "stable")
    assert (version, config.default_model_filename) == ("1", "model.py")


async def test_no_model_is_unknown_before_the_repository_was_read(tmp_path: Path, workshop: Workshop) -> None:
    manager = manager_of(tmp_path, workshop)
    try:
        with pytest.raises(Unavailable, match="`m` is not ready: the repository has not been read yet"):
            await manager.wait_for("m", "", None)
        await manager.look()
        with pytest.raises(NotFound):
            await manager.wait_for("m", "", None)
    finally:
        await manager.aclose()


async def test_absent_and_unloaded_models(tmp_path: Path, manager: ModelManager) -> None:
    put(tmp_path, "m")
    await manager.look()
    with pytest.raises(NotFound, match="Request for unknown model: 'other' is not found"):
        await manager.wait_for("other", "", None)
    with pytest.raises(Unavailable, match="`m` is not ready: it is not loaded") as caught:
        await manager.wait_for("m", "", None)
    assert caught.value.retry_after
    assert not manager.table.is_ready("m")
    with pytest.raises(NotFound):
        manager.table.is_ready("other")
    with pytest.raises(NotFound, match="there is no model other"):
        await manager.load("other")


@pytest.mark.parametrize("name", ["../m", "a/b", "", "..", ".hidden", "x" * 300])
async def test_a_name_that_leads_elsewhere_is_not_found(manager: ModelManager, name: str) -> None:
    with pytest.raises(NotFound, match="that of one folder"):
        await manager.load(name)


# ── swap ──────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_new_version_takes_over_and_the_old_one_ends_with_its_requests(
    tmp_path: Path, manager: ModelManager, workshop: Workshop
) -> None:
    put(tmp_path, "m", 1)
    await manager.load("m")
    old = used(manager)
    put(tmp_path, "m", 2)
    await manager.load("m")
    assert version_of(manager) == "2"
    assert manager.lease("m", "1") is None
    assert (await states(manager))[0] == ("m", "1", "UNLOADING", "unloaded")
    assert not workshop.instances[0].closed
    old.release()
    await until(lambda: workshop.instances[0].closed)
    await until(lambda: manager.table.models["m"].versions[1].state == "UNAVAILABLE")


async def test_an_unchanged_version_is_not_loaded_again(
    tmp_path: Path, manager: ModelManager, workshop: Workshop
) -> None:
    put(tmp_path, "m", 1, config=CONFIG + "versions: all\n")
    await manager.load("m")
    await manager.load("m")
    put(tmp_path, "m", 2, config=CONFIG + "versions: all\n# more\n")
    assert workshop.loaded == ["m/1"]
    await manager.load("m")
    assert sorted(workshop.loaded) == ["m/1", "m/1", "m/2"]  # its configuration has changed
    (tmp_path / "m" / "2" / "model.py").write_text("other")
    await manager.load("m")
    assert sorted(workshop.loaded) == ["m/1", "m/1", "m/2", "m/2"]


@pytest.mark.parametrize("words", ["fail", "refuse"])
async def test_a_version_that_fails_leaves_the_old_one_in_service(
    tmp_path: Path, manager: ModelManager, workshop: Workshop, words: str
) -> None:
    put(tmp_path, "m", 1, config=WARMED)
    await manager.load("m")
    put(tmp_path, "m", 2, words, config=WARMED)
    with pytest.raises(CallerError, match="`m` cannot be loaded: version 2: ") as caught:
        await manager.load("m")
    assert caught.value.code == "model_load_failed"
    assert version_of(manager) == "1"
    assert not workshop.instances[0].closed
    index = await states(manager)
    assert index[0] == ("m", "1", "READY", "")
    assert index[1][2] == "UNAVAILABLE"
    assert ("warm-up `first` failed: not today" in index[1][3]) == (words == "refuse")
    assert len(workshop.open) == 1


async def test_a_changed_version_that_fails_is_reported_beside_the_one_in_service(
    tmp_path: Path, manager: ModelManager
) -> None:
    put(tmp_path, "m")
    await manager.load("m")
    put(tmp_path, "m", words="fail")
    with pytest.raises(CallerError):
        await manager.load("m")
    assert version_of(manager) == "1"
    assert await states(manager) == [("m", "1", "READY", "cannot be loaded: it does not want to")]
    put(tmp_path, "m", words="well again")
    await manager.load("m")
    assert await states(manager) == [("m", "1", "READY", "")]


async def test_a_broken_configuration_leaves_the_old_version_in_service(tmp_path: Path, manager: ModelManager) -> None:
    put(tmp_path, "m")
    await manager.load("m")
    put(tmp_path, "m", config="max_batch_siz: 3\n")
    with pytest.raises(CallerError, match=r"m/model\.yaml:1: max_batch_siz: unknown field \(did you mean") as caught:
        await manager.load("m")
    assert str(tmp_path) not in str(caught.value)
    assert version_of(manager) == "1"
    assert "cannot be reloaded: m/model.yaml:1" in (await states(manager))[0][3]
    put(tmp_path, "m")
    await manager.load("m")
    assert await states(manager) == [("m", "1", "READY", "")]


async def test_a_label_that_leads_nowhere_leaves_everything_as_it_was(tmp_path: Path, manager: ModelManager) -> None:
    put(tmp_path, "m", 3, config=CONFIG + "labels: {stable: 3}\n")
    await manager.load("m")
    put(tmp_path, "m", 4, config=CONFIG + "labels: {stable: 5}\n")
    with pytest.raises(CallerError, match="the label stable names version 5, which is not there"):
        await manager.load("m")
    assert version_of(manager, "m", "stable") == "3"
    assert version_of(manager) == "3"


async def test_a_label_follows_its_version_only_when_that_is_loaded(tmp_path: Path, manager: ModelManager) -> None:
    put(tmp_path, "m", 3, config=CONFIG + "labels: {stable: 3}\n")
    await manager.load("m")
    put(tmp_path, "m", 4, "fail", config=CONFIG + "labels: {stable: 4}\n")
    with pytest.raises(CallerError):
        await manager.load("m")
    assert version_of(manager, "m", "stable") == "3"
    put(tmp_path, "m", 4, "fine", config=CONFIG + "labels: {stable: 4}\n")
    await manager.load("m")
    assert version_of(manager, "m", "stable") == "4"


async def test_an_open_sequence_stays_on_its_version(tmp_path: Path, manager: ModelManager, workshop: Workshop) -> None:
    config = CONFIG + "sequence_batching: true\n"
    put(tmp_path, "m", 1, config=config)
    await manager.load("m")
    old = used(manager)
    scheduler_of(old).sequences.add(7)
    old.release()
    put(tmp_path, "m", 2, config=config)
    await manager.load("m")
    for version in ("", "1"):
        served = manager.lease_sequence("m", version, 7)
        assert served is old
        served.release()
    new = manager.lease_sequence("m", "", 8)
    assert new is not None
    assert new.version == "2"
    new.release()
    assert manager.lease_sequence("m", "1", 8) is None
    assert not workshop.instances[0].closed
    scheduler_of(old).end(7)
    await until(lambda: workshop.instances[0].closed)


async def test_an_open_sequence_stays_also_where_its_version_is_still_in_service(
    tmp_path: Path, manager: ModelManager
) -> None:
    config = CONFIG + "sequence_batching: true\nversions: all\n"
    put(tmp_path, "m", 1, config=config)
    await manager.load("m")
    scheduler = scheduler_of(used(manager))
    scheduler.sequences.add("s")
    shutil.copytree(tmp_path / "m" / "1", tmp_path / "m" / "2")
    await manager.load("m")
    by_default, by_number = manager.lease_sequence("m", "", "s"), manager.lease_sequence("m", "2", "s")
    assert by_default is not None
    assert by_number is not None
    assert (by_default.version, by_number.version) == ("1", "2")
    assert manager.lease_sequence("other", "", "s") is None
    scheduler.end("s")
    new = manager.lease_sequence("m", "", "s")
    assert new is not None
    assert new.version == "2"


async def test_endless_work_is_ended(tmp_path: Path, workshop: Workshop) -> None:
    put(tmp_path, "m")
    async with managing(tmp_path, workshop, models=("m",), drain_seconds=0.05) as manager:
        served = used(manager)
        await manager.unload("m")
        await until(lambda: workshop.instances[0].closed)
        assert scheduler_of(served).closed
        served.release()


# ── unload ────────────────────────────────────────────────────────────────────────────────────────────


async def test_unloaded_it_is_out_of_service_at_once(tmp_path: Path, manager: ModelManager, workshop: Workshop) -> None:
    put(tmp_path, "m")
    await manager.load("m")
    served = used(manager)
    await manager.unload("m")
    assert manager.lease("m", "") is None
    with pytest.raises(Unavailable, match="unloaded"):
        await manager.wait_for("m", "", None)
    assert (await states(manager)) == [("m", "1", "UNLOADING", "unloaded")]
    served.release()
    await until(lambda: workshop.open == [])
    await until(lambda: manager.table.models["m"].versions[1].state == "UNAVAILABLE")
    await manager.unload("m")
    await manager.unload("never-there")
    await manager.load("m")
    assert version_of(manager) == "1"


async def test_unloading_ends_a_load_under_way(tmp_path: Path, manager: ModelManager, workshop: Workshop) -> None:
    put(tmp_path, "m", words="hang")
    load = asyncio.create_task(manager.load("m"))
    await until(lambda: workshop.hanging == 1)
    assert (await states(manager)) == [("m", "1", "LOADING", "")]
    with pytest.raises(Unavailable, match="is not ready: loading"):
        await manager.wait_for("m", "", None)
    await manager.unload("m")
    with pytest.raises(Unavailable, match="was unloaded while it was loading"):
        await load
    assert workshop.hanging == 0
    assert (await states(manager))[0][2] == "UNAVAILABLE"


async def test_an_unload_that_is_ordered_after_a_load_wins(
    tmp_path: Path, manager: ModelManager, workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent_to = tmp_path.with_name(f"{tmp_path.name}-sent")
    sent_to.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(sent_to))
    for at in range(20):  # at whatever step the load is
        load = asyncio.create_task(manager.load("m", Override('{"backend": "python"}', {"1/model.py": b"fine"})))
        await asyncio.sleep(at / 2000)
        await manager.unload("m")
        with suppress(Unavailable):  # unless it was done before
            await load
        assert manager.lease("m", "") is None
        await until(lambda: os.listdir(sent_to) == [])
    assert workshop.open == []


async def test_a_load_continues_after_its_caller_left(
    tmp_path: Path, manager: ModelManager, workshop: Workshop
) -> None:
    put(tmp_path, "m", words="hang")
    load = asyncio.create_task(manager.load("m"))
    await until(lambda: workshop.hanging == 1)
    load.cancel()
    workshop.release.set()
    await until(lambda: manager.table.is_ready("m"))


async def test_a_load_has_its_time(tmp_path: Path, workshop: Workshop) -> None:
    put(tmp_path, "m", words="hang")
    async with managing(tmp_path, workshop, load_seconds=0.05) as manager:
        with pytest.raises(CallerError, match=r"loading took longer than 0\.05 s"):
            await manager.load("m")
        assert workshop.hanging == 0


async def test_a_few_are_loaded_at_a_time(tmp_path: Path, workshop: Workshop) -> None:
    for i in range(6):
        put(tmp_path, f"m{i}", words="hang")
    manager = manager_of(tmp_path, workshop, "none", parallel_loads=2)
    start = asyncio.create_task(manager.start())
    await until(lambda: workshop.hanging == 2)
    workshop.release.set()
    await start
    assert workshop.most_at_once == 2
    assert len(workshop.loaded) == 6
    await manager.aclose()


async def test_closing_ends_loads_and_served_models(tmp_path: Path, workshop: Workshop) -> None:
    put(tmp_path, "a")
    put(tmp_path, "b", words="hang")
    manager = manager_of(tmp_path, workshop, models=("a",))
    await manager.start()
    load = asyncio.create_task(manager.load("b"))
    await until(lambda: workshop.hanging == 1)
    await manager.aclose()
    with pytest.raises(Unavailable):
        await load
    assert workshop.open == []
    with pytest.raises(Unavailable, match="stopping"):
        await manager.load("a")


# ── what is sent with a load ──────────────────────────────────────────────────────────────────────────


async def test_a_configuration_sent_along_takes_the_place_of_the_file(tmp_path: Path, manager: ModelManager) -> None:
    put(tmp_path, "m")
    sent = {"name": "m", "backend": "python", "max_batch_size": 2, "instance_group": [{"count": 3, "kind": "KIND_CPU"}]}
    await manager.load("m", Override(json.dumps(sent), {}))
    assert manager.table.describe("m")[1].max_batch_size == 2
    assert len(used(manager).instances) == 3
    await manager.load("m")
    assert manager.table.describe("m")[1].max_batch_size == 4


async def test_files_sent_along_are_the_whole_model_and_leave_nothing(
    tmp_path: Path, manager: ModelManager, workshop: Workshop
) -> None:
    put(tmp_path, "m")
    sent = Override(json.dumps({"backend": "python"}), {"5/model.py": b"fine", "labels.txt": b"a\n"})
    await manager.load("m", sent)
    assert manager.table.versions("m") == ["5"]
    served = used(manager)
    folder = served.folder
    assert (folder / "model.py").read_text() == "fine"
    await manager.load("m", sent)
    assert workshop.loaded == ["m/5"]
    await manager.load("m")
    assert manager.table.versions("m") == ["1"]
    assert folder.exists()
    served.release()
    await until(lambda: not folder.exists())


async def test_files_of_a_model_that_fails_leave_nothing(
    tmp_path: Path, manager: ModelManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent_to = tmp_path.with_name(f"{tmp_path.name}-sent")
    sent_to.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(sent_to))
    for words in ("fail", "fail"):
        with pytest.raises(CallerError, match="it does not want to"):
            await manager.load("m", Override('{"backend": "python"}', {"1/model.py": words.encode()}))
        assert os.listdir(sent_to) == []
    await manager.load("m", Override('{"backend": "python"}', {"1/model.py": b"fine"}))
    assert len(os.listdir(sent_to)) == 1
    with pytest.raises(CallerError, match="it does not want to"):
        await manager.load("m", Override('{"backend": "python"}', {"1/model.py": b"fail"}))
    assert version_of(manager) == "1"
    assert len(os.listdir(sent_to)) == 1
    await manager.unload("m")
    await until(lambda: os.listdir(sent_to) == [])


async def test_files_without_a_configuration_or_with_a_wrong_one(tmp_path: Path, manager: ModelManager) -> None:
    with pytest.raises(CallerError, match="without a configuration"):
        await manager.load("m", Override("", {"1/model.py": b"fine"}))
    with pytest.raises(CallerError, match="the configuration sent for m"):
        await manager.load("m", Override('{"max_batch_siz": 1}', {"1/model.py": b"fine"}))
    with pytest.raises(CallerError, match="m has no version"):
        await manager.load("m", Override('{"backend": "python"}', {"model.py": b"fine"}))


OUTSIDE = "headrace-test-outside"


@pytest.mark.parametrize(
    "name",
    [
        f"../{OUTSIDE}",
        f"1/../../{OUTSIDE}",
        "ABSOLUTE",
        "/ABSOLUTE",
        *("1//x", "", "1/", ".x", "1/.x", "a\\b", "1/\0", "1/" + "a/" * 20 + "b", "é" * 600),
    ],
)
def test_a_file_that_leads_elsewhere_is_refused(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    name = name.replace("ABSOLUTE", str(tmp_path / OUTSIDE))
    with pytest.raises(RepositoryError, match="is not a path of a model"):
        unpack("m", Override("{}", {name: b"x"}))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", [f"../{OUTSIDE}", "ABSOLUTE"])
def test_nor_is_it_written_where_the_check_of_names_is_wrong(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("runtimes.tensor.models.overrides.check_files", lambda _: None)
    with pytest.raises(RepositoryError, match="is not a path of a model"):
        unpack("m", Override("{}", {name.replace("ABSOLUTE", str(tmp_path / OUTSIDE)): b"x"}))
    assert list(tmp_path.iterdir()) == []


async def test_a_load_with_such_a_file_is_refused(manager: ModelManager) -> None:
    with pytest.raises(CallerError, match="is not a path of a model's file: write file:VERSION/NAME"):
        await manager.load("m", Override('{"backend": "python"}', {f"../{OUTSIDE}": b""}))
    assert not (Path(tempfile.gettempdir()) / OUTSIDE).exists()


# ── the repository itself ─────────────────────────────────────────────────────────────────────────────


async def test_a_model_that_is_gone_is_forgotten_when_nothing_uses_it(tmp_path: Path, manager: ModelManager) -> None:
    put(tmp_path, "m")
    await manager.load("m")
    shutil.rmtree(tmp_path / "m")
    assert [entry.name for entry in await manager.index()] == ["m"]
    await manager.unload("m")
    await until(lambda: not manager.table.models["m"].retiring)
    assert await manager.index() == []


async def test_a_mismatched_manifest_excludes_a_version(tmp_path: Path, manager: ModelManager) -> None:
    folder = put(tmp_path, "m")
    (folder / "SHA256SUMS").write_text(f"{'0' * 64}  model.py\n")
    with pytest.raises(CallerError, match=r"model\.py differs from its digest in SHA256SUMS"):
        await manager.load("m")
