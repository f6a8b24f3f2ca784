"""Bodies of JSON in which no rule finds anything, as their encoded form shows: most texts need no decoding.

Every text of a body stands between quotes in its encoded form. So a rule that finds nothing in the encoded form, whose
escapes are resolved, finds nothing in a text, with the exceptions that its finder declares.
"""

from collections.abc import Iterable

from policies.guards.folding import fold
from policies.guards.masking import RulesByView

_ESCAPES = ((b"\\n", b"\n"), (b'\\"', b'"'), (b"\\t", b"\t"), (b"\\r", b"\r"), (b"\\/", b"/"))


def is_clear(rules: RulesByView, parts: Iterable[bytes | memoryview]) -> bool:
    """Whether no rule finds anything in the texts, the keys and the numbers of encoded values. False if in doubt."""
    body = b"\n".join(parts)
    if b"\\" in body:
        for escape, letter in _ESCAPES:
            body = body.replace(escape, letter)
        if b"\\" in body:  # an escape that takes longer, or a backslash of a text, which may begin one of its own
            return False
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return False
    for view, rules_of_view in rules:
        if view.escapes:
            continue  # the same as the form before it: no text has a backslash
        form = fold(text, view.lower, view.lookalikes, False, True)
        if form.begins is not None or not all(rule.finder.is_clear(form.text) for rule in rules_of_view):
            return False
    return True
