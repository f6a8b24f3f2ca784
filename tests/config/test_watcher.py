import asyncio
import hashlib
import os
from pathlib import Path

import pytest

from config.loader import ConfigError
from config.schema.config import Config
from config.watcher import CHECK_INTERVAL, Watcher
from tests.support.inline_threads import take_no_time

from .conftest import RIGHT

BROKEN = RIGHT.replace("to: vllm", "to: vlm")


def named(name: str) -> str:
    return RIGHT.replace("acme", name)


class Followed:
    """A watcher of a file in a folder, and its reports."""

    def __init__(self, path: Path, text: str = RIGHT) -> None:
        self.path = path
        self.configs: list[Config] = []
        self.errors: list[str] = []
        self.write(text)
        self.watcher = Watcher(path, self.configs.append, lambda error: self.errors.append(str(error)))

    def write(self, text: str) -> None:
        self.path.write_text(text)

    def replace(self, text: str) -> None:
        fresh = self.path.with_suffix(".new")
        fresh.write_text(text)
        fresh.replace(self.path)

    async def look(self, times: int = 2) -> None:
        for _ in range(times):
            await self.watcher.poll()

    @property
    def tenants(self) -> list[str]:
        return [config.tenants[0].name for config in self.configs]


@pytest.fixture
def followed(tmp_path: Path) -> Followed:
    return Followed(tmp_path / "file.yaml")


async def test_the_digest_is_of_the_file_that_was_read_last(followed: Followed) -> None:
    assert followed.watcher.sha256 == hashlib.sha256(RIGHT.encode()).hexdigest()
    followed.write(BROKEN)
    await followed.look(3)
    assert followed.errors
    assert followed.watcher.sha256 == hashlib.sha256(BROKEN.encode()).hexdigest()
    followed.path.unlink()
    await followed.look(3)
    assert followed.watcher.sha256 == ""


async def test_probable_mistakes_are_logged(followed: Followed, caplog: pytest.LogCaptureFixture) -> None:
    followed.write(RIGHT.replace("        fallback: [spare]\n", ""))
    await followed.look(3)
    assert len(followed.configs) == 1
    assert "file.yaml:5: warning: pools[1].name: no route leads here" in caplog.text


async def test_an_unchanged_file_is_no_news(followed: Followed) -> None:
    await followed.look(5)
    followed.write(RIGHT)  # a new modification time, the same content
    await followed.look(5)
    assert followed.configs == []
    assert followed.errors == []


async def test_a_change_is_reported_once(followed: Followed) -> None:
    followed.write(named("globex"))
    await followed.look(5)
    assert followed.tenants == ["globex"]
    assert followed.errors == []


async def test_a_file_is_not_read_while_it_is_being_written(followed: Followed) -> None:
    for size in range(10, len(RIGHT), 10):
        followed.write(RIGHT[:size])
        await followed.look(1)
    followed.write(named("globex"))
    await followed.look(1)
    assert (followed.configs, followed.errors) == ([], [])
    await followed.look(1)
    assert followed.tenants == ["globex"]
    assert followed.errors == []


async def test_an_invalid_file_is_reported_once_for_each_content_and_changes_nothing(followed: Followed) -> None:
    followed.write(BROKEN)
    await followed.look(4)
    os.utime(followed.path, ns=(1, 1))
    await followed.look(4)
    assert len(followed.errors) == 1
    followed.write(BROKEN.replace("acme", "globex"))
    await followed.look(4)
    assert len(followed.errors) == 2
    assert followed.configs == []
    followed.write(named("globex"))
    await followed.look()
    assert followed.tenants == ["globex"]


async def test_a_file_replaced_by_a_rename(followed: Followed) -> None:
    followed.replace(named("globex"))
    await followed.look()
    followed.replace(named("initech"))
    await followed.look()
    assert followed.tenants == ["globex", "initech"]


async def test_the_same_time_and_size_in_another_file_is_seen(followed: Followed) -> None:
    before = followed.path.stat()
    followed.replace(named("acmf"))
    os.utime(followed.path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert followed.path.stat().st_size == before.st_size
    await followed.look()
    assert followed.tenants == ["acmf"]


async def test_a_deleted_file_is_an_error_until_it_is_back(followed: Followed) -> None:
    followed.path.unlink()
    await followed.look(4)
    assert len(followed.errors) == 1
    assert "cannot be read" in followed.errors[0]
    followed.write(named("globex"))
    await followed.look()
    assert followed.tenants == ["globex"]


async def test_a_symlink_that_is_turned_to_another_folder(tmp_path: Path) -> None:
    """Replace the file as Kubernetes replaces a mounted ConfigMap."""
    for version, tenant in (("v1", "acme"), ("v2", "globex")):
        (tmp_path / version).mkdir()
        (tmp_path / version / "file.yaml").write_text(named(tenant))
    link = tmp_path / "data"
    link.symlink_to("v1")
    followed = Followed(link / "file.yaml")
    (tmp_path / "next").symlink_to("v2")
    (tmp_path / "next").replace(link)
    await followed.look()
    assert followed.tenants == ["globex"]


KEYED = RIGHT.replace("name: spare", "name: spare\n    key: file:secrets/key")


async def test_a_secrets_file_is_followed_too(tmp_path: Path) -> None:
    secret = tmp_path / "secrets" / "key"
    secret.parent.mkdir()
    secret.write_text("first")
    followed = Followed(tmp_path / "file.yaml", KEYED)
    secret.write_text("second")
    await followed.look(4)
    key = followed.configs[0].pools[1].key
    assert key is not None
    assert key.get_secret_value() == "second"
    secret.unlink()
    await followed.look(4)
    assert len(followed.errors) == len(followed.configs) == 1
    secret.write_text("third")
    await followed.look(4)
    assert len(followed.configs) == 2


async def test_a_file_that_no_longer_names_a_secret_stops_following_it(tmp_path: Path) -> None:
    secret = tmp_path / "secrets" / "key"
    secret.parent.mkdir()
    secret.write_text("first")
    followed = Followed(tmp_path / "file.yaml", KEYED)
    followed.write(RIGHT)
    await followed.look(4)
    secret.write_text("second")
    await followed.look(4)
    assert len(followed.configs) == 1


async def test_a_forced_reload_reports_the_file_changed_or_not(followed: Followed) -> None:
    await followed.watcher.reload_now()
    assert followed.tenants == ["acme"]
    followed.write(BROKEN)
    await followed.watcher.reload_now()
    await followed.watcher.reload_now()
    assert len(followed.errors) == 2
    await followed.look(4)
    assert len(followed.errors) == 2


async def test_a_refusal_by_the_consumer_is_reported_as_an_error(tmp_path: Path) -> None:
    path = tmp_path / "file.yaml"
    path.write_text(RIGHT)
    errors: list[ConfigError] = []
    refusal = ConfigError([])

    async def refuse(config: Config) -> None:
        raise refusal

    watcher = Watcher(path, refuse, errors.append)
    await watcher.reload_now()
    assert errors == [refusal]


async def test_changes_are_handed_over_one_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "file.yaml"
    path.write_text(RIGHT)
    entered, leave = asyncio.Event(), asyncio.Event()
    steps: list[str] = []

    async def slow(config: Config) -> None:
        steps.append("begin")
        entered.set()
        await leave.wait()
        steps.append("end")

    watcher = Watcher(path, slow, lambda error: None)
    both = [asyncio.create_task(watcher.reload_now()) for _ in range(2)]
    await entered.wait()
    leave.set()
    await asyncio.gather(*both)
    assert steps == ["begin", "end"] * 2


@pytest.mark.looptime
@pytest.mark.parametrize("after", [0.0, 0.1, 0.5, 0.51, 7.49])
async def test_a_change_is_in_force_after_two_checks(
    followed: Followed, monkeypatch: pytest.MonkeyPatch, after: float
) -> None:
    """The bound of the documentation: a second after the last write, beside the time of the load itself."""
    take_no_time(monkeypatch)
    running = asyncio.create_task(followed.watcher.run())
    await asyncio.sleep(after)
    clock = asyncio.get_running_loop().time
    followed.replace(named("globex"))
    written = clock()
    while not followed.configs:
        await asyncio.sleep(0.01)
        assert clock() - written <= 2 * CHECK_INTERVAL + 0.011
    assert followed.tenants == ["globex"]
    running.cancel()
