"""Relations between patterns, to reject a pattern that can never match at load.

The patterns are ``fnmatch``'s, case-sensitive: ``*``, ``?``, ``[ab]``, ``[!ab]``.
"""

import re
from fnmatch import fnmatchcase

_LITERALS_AND_STARS = re.compile(r"[^?\[\]!]*")


def is_glob(name: str) -> bool:
    """Whether a name is a glob, and so names a family."""
    return re.search(r"[*?\[]", name) is not None


def covers(wide: str, narrow: str) -> bool:
    """Whether ``wide`` certainly matches every name that ``narrow`` matches.

    If ``wide`` has only literals and stars, it can be matched against the text of ``narrow`` itself, as a star
    matches any wildcard. The result for other pairs is False, which rejects nothing.
    """
    if wide == narrow:
        return True
    if is_glob(narrow) and not _LITERALS_AND_STARS.fullmatch(wide):
        return False
    return fnmatchcase(narrow, wide)


def may_overlap(one: str, other: str) -> bool:
    """Whether a name may match both patterns. Two globs are compared by their literal beginnings only."""
    if not is_glob(one):
        return fnmatchcase(one, other)
    if not is_glob(other):
        return fnmatchcase(other, one)
    a, b = re.split(r"[*?\[]", one)[0], re.split(r"[*?\[]", other)[0]
    return a.startswith(b) or b.startswith(a)
