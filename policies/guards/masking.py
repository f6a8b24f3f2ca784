"""A text behind rules: it leaves when no forbidden span can begin in it, and masks stand in the place of spans.

The result does not depend on how the text is cut into chunks: a whole text is one chunk.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from policies.guards.finders import Finder, NamedFinder
from policies.guards.folding import Folded, fold

MASK = "[…]"
SLAB = 1024
"""Characters of a whole text that are examined at once, so that many spans do not make it slow."""
_NEAR = 64
"""Characters of a key, and of the value after it, in which the key may name the value."""
MOST_HELD = 16 * 1024
"""Characters that are held while a span may begin in them. No secret and no address is as long."""


class TextTooLong(Exception):
    """The text has a part that is too long to be examined."""


@dataclass(frozen=True, slots=True)
class View:
    """A compared form."""

    lower: bool = False
    lookalikes: bool = False
    escapes: bool = False


@dataclass(slots=True)
class Rule:
    """A finder, the forms of the text that it reads, and what its spans mean.

    `index` names the guard; the spans of a rule that does not `mask` are only reported.
    """

    index: int
    finder: Finder
    masks: bool
    view: View = field(default_factory=View)
    write: Callable[[str], str] | None = None
    """Returns what takes the place of a span, for its text in the original; None for ``[…]``."""


RulesByView = Sequence[tuple[View, Sequence[Rule]]]
"""The rules by the forms that they read. A form with escapes follows the same one without."""
Report = Callable[[int], None]
"""Receives the index of the guard, once for each settled span. May raise to stop."""


class HeldText:
    """One text. `feed` and `end` return what may leave. Raises `TextTooLong`, and what `report` raises."""

    __slots__ = ("_contexts", "_is_plain", "_plain", "_report", "_rules", "_text")

    def __init__(self, rules: RulesByView, report: Report) -> None:
        self._rules = rules
        self._report = report
        self._text = ""
        self._contexts = ["\n"] * len(rules)
        """For each form its last character that has left; a line feed before the first one."""
        self._is_plain = True
        """Whether the contexts are the same letter of ASCII, but for its case."""
        self._plain = [(view, rule) for view, rules_of_view in rules for rule in rules_of_view if not view.escapes]

    def whole(self, text: str) -> str:
        """What may leave of a whole text, however long the parts are in which a span may begin."""
        out, at = list[str](), 0
        while at < len(text):
            size = max(SLAB, 2 * len(self._text))
            self._text += text[at : at + size]
            at += size
            out.append(self._release(whole=at >= len(text)))
        return "".join(out)

    def feed(self, text: str) -> str:
        """Add the next part of the text."""
        self._text += text
        released = self._release(whole=False)
        if len(self._text) > MOST_HELD:
            raise TextTooLong
        return released

    def end(self) -> str:
        """The rest of the text."""
        return self._release(whole=True) if self._text else ""

    def _release(self, *, whole: bool) -> str:
        if self._is_plain and self._text.isascii() and "\\" not in self._text:
            return self._release_plain(whole=whole)
        text, limit = self._text, len(self._text) + 1
        folded, spans, plain = list[Folded | None](), list[tuple[int, int, Rule]](), ""
        has_escapes = "\\" in text
        for (view, rules), context in zip(self._rules, self._contexts, strict=True):
            if view.escapes and not has_escapes and context == plain:
                folded.append(None)  # the same as the form without escapes
                continue
            plain = context
            form = fold(context + text, view.lower, view.lookalikes, view.escapes, whole)
            folded.append(form)
            begin = 1 if form.begins is None else bisect_left(form.begins, 1)
            limit = min(limit, form.size)
            for rule in rules:
                stop = len(form.text)
                if not whole:
                    stop = rule.finder.open(form.text, begin)
                    limit = min(limit, form.begin(stop))
                _collect(rule, form, begin, stop, spans)
        limit = max(_aligned(limit, folded, spans), 1)
        released = self._masked(limit, spans) if spans else text[: limit - 1]
        if limit > 1:
            self._text = text[limit - 1 :]
            self._remember(limit, folded)
        return released

    def _release_plain(self, *, whole: bool) -> str:
        """The same for a text whose forms differ in their case at most."""
        given = self._contexts[0] + self._text
        limit = stop = len(given)
        lower, spans = "", list[tuple[int, int, Rule]]()
        for view, rule in self._plain:
            text = given
            if view.lower:
                text = lower = lower or given.lower()
            if not whole:
                stop = rule.finder.open(text, 1)
                limit = min(limit, stop)
            at = 1
            while at < stop and (span := rule.finder.find(text, at)) is not None and span[0] < stop:
                spans.append((*span, rule))
                at = max(span[1], at + 1)
        if spans:
            limit = _aligned(limit, (), spans)
            released = self._masked(limit, spans)
        else:
            released = given[1:limit]
        if limit > 1:
            self._contexts, self._text = [given[limit - 1]] * len(self._contexts), given[limit:]
        return released

    def _masked(self, limit: int, spans: list[tuple[int, int, Rule]]) -> str:
        """The text before `limit`, with masks. The places of `spans` count the context."""
        out, at, reported = list[str](), 1, dict[int, int]()
        for begin, end, rule in sorted(spans, key=lambda span: (span[0], -span[1], span[2].index)):
            if begin >= limit:
                break
            if begin >= reported.get(rule.index, 0):  # the same span may be in several forms
                self._report(rule.index)
            reported[rule.index] = max(end, reported.get(rule.index, 0))
            if rule.masks:
                if begin >= at:
                    written = MASK if rule.write is None else rule.write(self._text[begin - 1 : end - 1])
                    out += [self._text[at - 1 : begin - 1], written]
                at = max(at, end)
        out.append(self._text[at - 1 : limit - 1])
        return "".join(out)

    def _remember(self, limit: int, folded: Sequence[Folded | None]) -> None:
        """Note the last character of each form before `limit`. A backslash would begin an escape again."""
        plain = "\n"
        for index, form in enumerate(folded):
            if form is None:
                self._contexts[index] = plain  # of the same form without escapes, which is the one before
                continue
            at = limit if form.begins is None else bisect_left(form.begins, limit)
            if at > 0:
                last = form.text[at - 1]
                self._contexts[index] = plain = "\n" if last == "\\" else last
            else:
                plain = self._contexts[index]
        first = self._contexts[0]
        self._is_plain = first.isascii() and all(each.lower() == first.lower() for each in self._contexts)


def _collect(rule: Rule, form: Folded, begin: int, stop: int, spans: list[tuple[int, int, Rule]]) -> None:
    """Add the settled spans of a rule."""
    at = begin
    while at < stop and (span := rule.finder.find(form.text, at)) is not None and span[0] < stop:
        spans.append((*form.span(*span), rule))
        at = max(span[1], at + 1)


def _aligned(limit: int, folded: Sequence[Folded | None], spans: Sequence[tuple[int, int, Rule]]) -> int:
    """The last place up to the limit that cuts neither a span nor a character of any form."""
    while True:
        before = limit
        for begin, end, _ in spans:
            if begin < limit < end:
                limit = begin
        for form in folded:
            if form is not None and form.begins is not None and form.ends is not None:
                index = bisect_right(form.begins, limit) - 1
                while index >= 0 and form.begins[index] < limit < form.ends[index]:
                    limit = form.begins[index]
                    index -= 1
        if limit == before:
            return limit


def by_view(rules: Iterable[Rule]) -> RulesByView:
    """The rules with all forms that they read: with and without the escapes of JSON."""
    views: dict[View, list[Rule]] = {}
    for rule in rules:
        for escapes in (False, True):
            views.setdefault(replace(rule.view, escapes=escapes), []).append(rule)
    return list(views.items())


def masked(text: str, rules: RulesByView, report: Report) -> str:
    """A whole text with masks. Raises what `report` raises."""
    return HeldText(rules, report).whole(text)


def masked_by_key(key: str, text: str, rules: RulesByView, report: Report) -> str:
    """A text that `masked` has made, of an object of JSON, with masks for what its key makes a span."""
    before = f"\n{key[-_NEAR:]}: "
    size = len(before)
    for view, rules_of_view in rules:
        for rule in () if view.escapes else rules_of_view:
            if not isinstance(rule.finder, NamedFinder):
                continue
            form = fold(before + text[:_NEAR], False, False, True, True)
            for begin, end in sorted((form.span(*span) for span in rule.finder.named(form.text)), reverse=True):
                if end > size:
                    report(rule.index)
                    if rule.masks:
                        text = text[: max(begin - size, 0)] + MASK + text[end - size :]
    return text
