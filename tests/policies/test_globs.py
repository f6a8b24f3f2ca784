from fnmatch import fnmatchcase

from hypothesis import given
from hypothesis import strategies as st

from config.schema.config import is_glob
from policies.globs import MEMO_ENTRIES, MEMO_NAME_LENGTH, GlobSet, GlobTable, glob

patterns = st.text("ab*?[]!-^&~|", min_size=1, max_size=8)
names = st.text("ab-]!", max_size=6)


@given(patterns, names)
def test_glob_agrees_with_fnmatch(pattern: str, name: str) -> None:
    assert glob(pattern)(name) is (fnmatchcase(name, pattern) if is_glob(pattern) else name == pattern)


def test_a_glob_is_case_sensitive_and_matches_the_whole_name() -> None:
    assert glob("gpt-*")("gpt-4")
    assert not glob("gpt-*")("GPT-4")
    assert not glob("gpt-?")("gpt-45")
    assert not glob("*-4")("gpt-4\n")


@given(st.lists(patterns, max_size=5), st.lists(names, max_size=20))
def test_a_table_prefers_the_exact_name_then_the_first_glob(keys: list[str], lookups: list[str]) -> None:
    table = GlobTable((key, index) for index, key in enumerate(keys))
    for name in lookups * 2:  # the second time from the memo
        exact = [i for i, key in enumerate(keys) if key == name and not is_glob(key)]
        globbed = [i for i, key in enumerate(keys) if is_glob(key) and fnmatchcase(name, key)]
        assert table.find(name) == next(iter(exact + globbed), None)


def test_the_memo_is_bounded_in_entries_and_in_length_and_holds_hits_only() -> None:
    table = GlobTable([("chat", "exact"), ("v-*", "glob")])
    for i in range(3 * MEMO_ENTRIES):
        assert table.find(f"v-{i}") == "glob"
        assert len(table._cached) <= MEMO_ENTRIES + 1
    assert table.find("chat") == "exact"

    size = len(table._cached)
    assert table.find("v-" + "x" * MEMO_NAME_LENGTH) == "glob"
    assert table.find("nothing") is None
    assert len(table._cached) == size


def test_a_repeated_glob_hit_is_read_from_the_memo() -> None:
    table = GlobTable([("v-*", 1)])
    table.find("v-1")
    table._globs = ()
    assert table.find("v-1") == 1
    assert table.find("v-2") is None


@given(st.lists(patterns, max_size=4), names)
def test_a_set_contains_the_matches_of_any_pattern(members: list[str], name: str) -> None:
    assert (name in GlobSet(members)) is any(glob(member)(name) for member in members)
