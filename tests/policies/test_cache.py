from collections import OrderedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.cache import OVERHEAD, PART, CacheEntry, Store, wish

SIZE = 8 * 2048
TTL = 50.0


def entry(size: int, at: float) -> CacheEntry:
    return CacheEntry("application/json", b"x" * size, at)


ACTIONS = st.lists(
    st.tuples(st.sampled_from(["get", "put"]), st.integers(0, 12), st.integers(0, 2200), st.integers(0, 20)),
    max_size=60,
)


@given(ACTIONS)
def test_it_holds_the_most_recently_used_within_its_bytes_and_time(actions: list[tuple[str, int, int, int]]) -> None:
    store, model, now = Store(TTL, SIZE), OrderedDict[bytes, CacheEntry](), 0.0
    for action, name, size, seconds in actions:
        now += seconds
        digest = b"%d" % name
        if action == "put":
            store.put(digest, made := entry(size, now))
            if size <= SIZE // PART:
                model.pop(digest, None)
                model[digest] = made
                while sum(len(held.body) + OVERHEAD for held in model.values()) > SIZE:
                    model.popitem(last=False)
        else:
            expected = model.get(digest)
            if expected is not None and now - expected.at >= TTL:
                del model[digest]
                expected = None
            if expected is not None:
                model.move_to_end(digest)
            assert store.get(digest, float("inf"), now) is expected
        assert store.size == sum(len(held.body) + OVERHEAD for held in model.values()) <= SIZE
        assert len(store) == len(model)


def test_an_answer_is_no_older_than_the_client_allows() -> None:
    store = Store(TTL, SIZE)
    store.put(b"a", stored := entry(1, 0.0))
    assert store.get(b"a", 5.0, 5.0) is stored
    assert store.get(b"a", 4.0, 5.0) is None
    assert store.get(b"a", 9.0, 5.0) is stored  # the lookup with a lower maximum age did not evict it


def test_new_bounds_apply_to_stored_entries() -> None:
    store = Store(TTL, SIZE)
    for i in range(4):
        store.put(b"%d" % i, entry(1000, 0.0))
    store.configure(TTL, 2 * (1000 + OVERHEAD))
    assert [store.get(b"%d" % i, 99.0, 1.0) is None for i in range(4)] == [True, True, False, False]
    store.configure(0.5, SIZE)
    assert store.get(b"3", 99.0, 1.0) is None
    store.configure(0.0, SIZE)
    store.put(b"9", entry(1, 1.0))
    assert store.get(b"9", 99.0, 1.0) is None


@pytest.mark.parametrize(
    ("header", "store", "max_age"),
    [
        (None, True, float("inf")),
        ("", True, float("inf")),
        ("no-store", False, float("inf")),
        ("No-Cache", True, -1.0),
        ("max-age=60, no-transform", True, 60.0),
        ('max-age="60",max-age=5', True, 5.0),
        ("max-age=0", True, 0.0),
        ("no-store,no-cache", False, -1.0),
        ("max-age=-5, x=y, public", True, float("inf")),
        ("max-age=" + "9" * 99, True, float("inf")),
    ],
)
def test_cache_control_of_clients(header: str | None, store: bool, max_age: float) -> None:
    assert wish(header) == (store, max_age)
