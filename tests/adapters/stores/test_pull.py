"""Objects are pulled into views: resumed, verified, bounded, and replaced in one step."""

import contextlib
import hashlib
import io
import stat
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from adapters.stores import zstandard_file
from adapters.stores.cache import CacheRoom, StoreCache, use
from adapters.stores.pull import Puller
from adapters.stores.source import StoredObject, StoreError, checked_path
from adapters.stores.transfer import fetch
from tests.support.stores import ObjectsInMemory, tar_of, zip_of, zstd_of

pytestmark = pytest.mark.realtime
FILES = {"m/1/weights.bin": b"w" * 5000, "m/model.yaml": b"backend: python\n"}


@pytest.fixture
def cache(tmp_path: Path) -> StoreCache:
    return StoreCache(tmp_path / "cache", 1 << 20)


def contents(view: Path) -> dict[str, bytes]:
    return {str(path.relative_to(view)): path.read_bytes() for path in view.rglob("*") if path.is_file()}


async def test_a_view_has_the_files_of_the_place(cache: StoreCache) -> None:
    place = ObjectsInMemory(FILES)
    pulled = await Puller("p", place, cache).pull()
    assert contents(pulled.view) == FILES
    assert (pulled.files, pulled.size, pulled.transferred) == (2, 5016, 5016)
    assert cache.current("p") == pulled.view


async def test_an_unchanged_place_is_not_read_again(cache: StoreCache) -> None:
    place = ObjectsInMemory(FILES)
    puller = Puller("p", place, cache)
    first = await puller.pull()
    place.reads.clear()
    assert (await puller.pull()).view == first.view
    assert (await Puller("p", place, cache).pull()) == first._replace(transferred=0)
    assert place.reads == []


async def test_a_changed_file_is_pulled_alone_and_the_others_stay_the_same_file(cache: StoreCache) -> None:
    place = ObjectsInMemory(FILES)
    before = (await Puller("p", place, cache).pull()).view
    place.files["m/model.yaml"] = b"backend: onnx\n"
    place.reads.clear()
    after = (await Puller("p", place, cache).pull()).view
    assert place.reads == [("m/model.yaml", 0)]
    assert before != after
    assert contents(before) == FILES
    assert (before / "m/1/weights.bin").stat().st_ino == (after / "m/1/weights.bin").stat().st_ino


async def test_an_interrupted_transfer_goes_on_where_it_was(cache: StoreCache) -> None:
    place = ObjectsInMemory({"m": bytes(range(256)) * 20})
    place.cut, place.cuts = 1000, 4
    pulled = await Puller("p", place, cache).pull()
    assert contents(pulled.view) == place.files
    assert place.reads == [("m", offset) for offset in (0, 1000, 2000, 3000, 4000)]


async def test_a_transfer_that_brings_nothing_ends_and_a_later_pull_goes_on(
    cache: StoreCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("adapters.stores.transfer.FIRST_PAUSE", 0.0)
    place = ObjectsInMemory(FILES)
    await Puller("p", place, cache).pull()
    place.files["m/1/weights.bin"] = b"x" * 5000
    place.cut, place.cuts = 100, 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("adapters.stores.transfer.ATTEMPTS", 1)
        with pytest.raises(StoreError, match="ended early"):
            await Puller("p", place, cache).pull()
    view = cache.current("p")
    assert view is not None
    assert contents(view) == FILES
    place.reads.clear()
    assert contents((await Puller("p", place, cache).pull()).view) == place.files
    assert place.reads == [("m/1/weights.bin", 100)]


@pytest.mark.parametrize("change", [lambda content: content[:-1] + b"!", lambda content: content + b"!"])
async def test_a_body_that_differs_from_its_digest_or_size_is_refused(
    cache: StoreCache, change: Callable[[bytes], bytes]
) -> None:
    place = ObjectsInMemory(FILES)
    good = (await Puller("p", place, cache).pull()).view
    (item, *_) = await place.items()
    stated = StoredObject("n", "n", item.version, 5000, f"sha256:{item.version}")
    place.items_of_archives = [stated]
    wrong = change(FILES["m/1/weights.bin"])
    place.files = {"n": wrong}

    async def read(item: StoredObject, offset: int):  # type: ignore[no-untyped-def]
        yield wrong[offset:]

    place.read = read  # type: ignore[method-assign]
    with pytest.raises(StoreError, match=r"differs from its digest|has more than"):
        await Puller("p", place, StoreCache(cache.root / "other", 1 << 20)).pull()
    assert cache.current("p") == good
    assert not list((cache.root / "other" / "parts").iterdir())


async def test_a_cache_stays_within_its_bound_and_refuses_more(tmp_path: Path) -> None:
    cache = StoreCache(tmp_path, 25_000)
    place = ObjectsInMemory()
    for number in range(8):
        place.files = {"m": bytes([number]) * 10_000}
        view = (await Puller("p", place, cache).pull()).view
        assert sum(path.stat().st_size for path in (tmp_path / "files").iterdir()) <= 25_000
        assert contents(view) == place.files
    place.files = {"m": b"x" * 25_001}
    with pytest.raises(StoreError, match="would not fit"):
        await Puller("p", place, cache).pull()
    assert contents(view)["m"][0] == 7


async def test_several_files_that_do_not_fit_together_are_refused_before_the_first(tmp_path: Path) -> None:
    place = ObjectsInMemory({name: name.encode() * 10_000 for name in "abc"})
    with pytest.raises(StoreError, match="would not fit"):
        await Puller("p", place, StoreCache(tmp_path, 25_000)).pull()
    assert place.reads == []


async def test_a_view_in_use_is_not_removed(tmp_path: Path) -> None:
    cache = StoreCache(tmp_path, 25_000)
    place = ObjectsInMemory({"m": b"0" * 10_000})
    first = (await Puller("p", place, cache).pull()).view
    held = use(first)
    assert held is not None
    place.files = {"m": b"1" * 10_000}
    await Puller("p", place, cache).pull()
    place.files = {"m": b"2" * 10_000}
    with pytest.raises(StoreError, match="would not fit"):
        await Puller("p", place, cache).pull()
    assert contents(first) == {"m": b"0" * 10_000}
    held.close()
    assert contents((await Puller("p", place, cache).pull()).view) == place.files
    assert not first.exists()
    assert use(first) is None


def zstd_tar_of(files: dict[str, bytes]) -> bytes:
    return zstd_of(tar_of(files, ""))


def pzstd_tar_of(files: dict[str, bytes]) -> bytes:
    return b"\x5a\x2a\x4d\x18" + (4).to_bytes(4, "little") + b"size" + zstd_tar_of(files)


@pytest.mark.parametrize(
    ("kind", "made"), [("tar", tar_of), ("tar", zstd_tar_of), ("tar", pzstd_tar_of), ("zip", zip_of)]
)
async def test_an_archive_is_unpacked(cache: StoreCache, kind: str, made: Callable[[dict[str, bytes]], bytes]) -> None:
    place = ObjectsInMemory()
    place.archive("a", made({**FILES, "./n/1/x": b"x"}), kind)
    assert contents((await Puller("p", place, cache).pull()).view) == {**FILES, "n/1/x": b"x"}
    assert not list((cache.root / "parts").iterdir())


def linked(kind: bytes) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as archive:
        member = tarfile.TarInfo("m/link")
        member.type, member.linkname = kind, "/etc/passwd"
        archive.addfile(member)
    return target.getvalue()


def zipped_link() -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        entry = zipfile.ZipInfo("m/link")
        entry.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(entry, "/etc/passwd")
    return target.getvalue()


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("tar", tar_of({"../x": b"x"})),
        ("tar", tar_of({"/etc/x": b"x"})),
        ("tar", tar_of({"m/../../x": b"x"})),
        ("tar", tar_of({"m": b"x", "m/1": b"x"})),
        ("zip", zip_of({"../x": b"x"})),
        ("zip", zip_of({"m\\x": b"x"})),
        *(("tar", linked(kind)) for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE)),
        ("zip", zipped_link()),
        ("tar", tar_of({"m": bytes(3 << 20)})),
        ("tar", tar_of(FILES)[:-40]),
        ("tar", zstandard.compress(tar_of(FILES, ""))[:-4]),
        ("tar", zstandard.compress(tar_of(FILES, "")) + b"no frame"),
        ("tar", b"no archive"),
        ("zip", b"no archive"),
        ("tar", b""),
    ],
)
async def test_an_archive_that_would_do_harm_is_refused(cache: StoreCache, kind: str, content: bytes) -> None:
    place = ObjectsInMemory()
    place.archive("a", content, kind)
    with pytest.raises(StoreError):
        await Puller("p", place, cache).pull()
    assert cache.current("p") is None
    assert [path.name for path in cache.root.parent.iterdir()] == ["cache"]


async def test_an_archive_that_grows_beyond_any_reason_is_refused(
    cache: StoreCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("adapters.stores.unpacking.FREE_BYTES", 1000)
    place = ObjectsInMemory()
    for made in (tar_of, zstd_tar_of):
        place.archive("a", made({"m": bytes(8_000_000)}), "tar")
        with pytest.raises(StoreError, match="when it is unpacked"):
            await Puller("p", place, cache).pull()


@given(content=st.binary(max_size=5000), frame=st.integers(1, 5000), cut=st.integers(0, 5000), sizes=st.data())
def test_zstd_gives_all_bytes_or_an_error(content: bytes, frame: int, cut: int, sizes: st.DataObject) -> None:
    """However many frames there are, and wherever they end."""
    packed = zstd_of(content, frame)
    with tempfile.NamedTemporaryFile() as file:
        file.write(packed[: len(packed) - cut] if cut < len(packed) else packed)
        file.flush()
        read = bytearray()
        with zstandard_file.opened(Path(file.name)) as stream, contextlib.suppress(EOFError):
            while piece := stream.read(sizes.draw(st.integers(1, 3000))):
                read += piece
        assert content.startswith(read)
        assert cut or bytes(read) == content


async def test_archives_that_change_again_and_again_replace_their_old_files_in_the_cache(tmp_path: Path) -> None:
    cache = StoreCache(tmp_path, 100_000)
    place = ObjectsInMemory()
    puller = Puller("p", place, cache)
    for number in range(8):
        content = bytes([number]) * 40_000
        place.archive("a", tar_of({"w": content}))
        if number % 2:
            place.items_of_archives = [replace(item, size=None) for item in place.items_of_archives]
        assert contents((await puller.pull()).view) == {"w": content}
        assert sum(path.stat().st_size for path in (tmp_path / "files").iterdir()) <= 100_000


def archives(contents: list[bytes]) -> ObjectsInMemory:
    """A place with an archive of one file for each content."""
    place = ObjectsInMemory({f"{at}.tar": tar_of({"w": content}) for at, content in enumerate(contents)})
    place.items_of_archives = [
        StoredObject(name, name, hashlib.sha256(content).hexdigest(), len(content), "", "tar")
        for name, content in place.files.items()
    ]
    return place


async def test_archives_that_are_unpacked_at_once_share_the_room_of_the_cache(tmp_path: Path) -> None:
    distinct = [bytes([at]) * 40_000 for at in range(4)]
    with pytest.raises(StoreError, match="no room for it in the cache"):
        await Puller("p", archives(distinct), StoreCache(tmp_path / "small", 100_000)).pull()
    assert sum(path.stat().st_size for path in (tmp_path / "small" / "files").iterdir()) <= 100_000
    view = (await Puller("p", archives(distinct), StoreCache(tmp_path / "large", 200_000)).pull()).view
    assert sorted(contents(view).values()) == distinct


async def test_an_archive_gives_back_the_room_that_it_does_not_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of its own bytes, of what the cache has already, and of what is passed over."""
    monkeypatch.setattr("adapters.stores.pull.PARALLEL", 1)
    random = Random(0)
    same, other = random.randbytes(40_000), random.randbytes(40_000)
    place = archives([same, same, same, other])
    most = sum(item.size or 0 for item in place.items_of_archives) + 45_000
    pulled = await Puller("p", place, StoreCache(tmp_path, most)).pull()
    assert sorted(contents(pulled.view)) == ["0.tar/w", "1.tar/w", "2.tar/w", "3.tar/w"]
    layer = tar_of({"etc/x": bytes(90_000), "models/w": b"w"})
    place.archive("l", layer, "layer")
    assert contents((await Puller("q", place, StoreCache(tmp_path / "q", 20_000)).pull()).view) == {"w": b"w"}


@given(st.text(max_size=80) | st.lists(st.sampled_from(["..", ".", "", "a", "b\\", "\0"])).map("/".join))
def test_no_accepted_path_leads_out_of_a_view(path: str) -> None:
    try:
        checked_path(path)
    except StoreError:
        return
    root = Path("/view")
    assert (root / path).resolve().is_relative_to(root)
    assert (root / path) != root


async def test_two_objects_of_one_content_arrive_once(cache: StoreCache) -> None:
    place = ObjectsInMemory({"x": b"same"})
    (item,) = await place.items()
    digest = f"sha256:{item.version}"
    place.items_of_archives = [StoredObject(path, "x", item.version, 4, digest) for path in ("a/1/x", "b/1/x")]
    pulled = await Puller("p", place, cache).pull()
    assert contents(pulled.view) == {"a/1/x": b"same", "b/1/x": b"same"}
    assert len(place.reads) == 1


async def test_after_a_crash_of_the_machine_nothing_is_trusted_that_may_be_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = ObjectsInMemory({"a": b"a" * 1000})
    cache = StoreCache(tmp_path, 1 << 20)
    await Puller("p", place, cache).pull()
    place.files["b"] = b"b" * 1000
    (_, item) = await place.items()
    async with cache.locked():  # a pull that does not reach its end
        await fetch(place, "p", item, cache, CacheRoom(0, cache.evict))
    (torn,) = [path for path in (tmp_path / "files").iterdir() if path.read_bytes() == b"b" * 1000]
    torn.chmod(0o600)
    torn.write_bytes(bytes(1000))
    place.reads.clear()
    monkeypatch.setattr("adapters.stores.cache._boot", lambda: "another")
    assert contents((await Puller("p", place, cache).pull()).view) == place.files
    assert place.reads == [("b", 0)]
