"""How patterns relate to each other, so that one which can never match is refused at load.

The patterns are ``fnmatch``'s, case-sensitive: ``*``, ``?``, ``[ab]``, ``[!ab]``.
"""

import re
from fnmatch import fnmatchcase

_LITERALS_AND_STARS = re.compile(r"[^?\[\]!]*")


def is_glob(name: str) -> bool:
    """Whether a name stands for a family."""
    return re.search(r"[*?\[]", name) is not None


def covers(wide: str, narrow: str) -> bool:
    """Whether every name that ``narrow`` matches is surely matched by ``wide``.

    Where ``wide`` is literals and stars only, it may be matched against the text of ``narrow`` itself:
    a star swallows any wildcard. Other pairs answer False, which refuses nothing.
    """
    if wide == narrow:
        return True
    if is_glob(narrow) and not _LITERALS_AND_STARS.fullmatch(wide):
        return False
    return fnmatchcase(narrow, wide)


def may_overlap(one: str, other: str) -> bool:
    """Whether some name may match both. Two globs are told apart by their literal beginnings only."""
    if not is_glob(one):
        return fnmatchcase(one, other)
    if not is_glob(other):
        return fnmatchcase(other, one)
    a, b = re.split(r"[*?\[]", one)[0], re.split(r"[*?\[]", other)[0]
    return a.startswith(b) or b.startswith(a)
