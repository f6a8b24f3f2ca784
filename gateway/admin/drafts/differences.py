"""A text compared with another one."""

from difflib import unified_diff

MOST_LINES = 20_000
CONTEXT = 3


def difference(old: str, new: str) -> str | None:
    """The changed lines in the unified format; None for texts that are too long to compare."""
    before, after = old.splitlines(), new.splitlines()
    if old == new:
        return ""
    if max(len(before), len(after)) > MOST_LINES:
        return None
    lines = unified_diff(before, after, "in force", "draft", lineterm="", n=CONTEXT)
    return "\n".join(lines)
