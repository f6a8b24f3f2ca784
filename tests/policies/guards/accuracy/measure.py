"""Precision and recall of the guards that compare, over the texts of the files beside this one."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from policies.guards.finders import Finder, SecretFinder, UrlFinder, WordFinder
from policies.guards.folding import fold
from policies.guards.personal.entities import ENTITIES, EntityFinder
from tests.policies.guards.accuracy.samples import Sample, samples_of

Span = tuple[int, int]
Spans = Callable[[str], list[Span]]


@dataclass
class Score:
    """What a guard has done with the texts of one kind. A value counts if all of it is in one finding."""

    values: int = 0
    caught: int = 0
    findings: int = 0
    wrong: int = 0
    """Findings that touch nothing forbidden."""

    @property
    def recall(self) -> float | None:
        return self.caught / self.values if self.values else None

    @property
    def precision(self) -> float | None:
        return 1 - self.wrong / self.findings if self.findings else None

    def add(self, sample: Sample, findings: Sequence[Span]) -> None:
        self.values += len(sample.spans)
        self.caught += sum(any(_covers(span, value) for span in findings) for value in sample.spans)
        self.findings += len(findings)
        self.wrong += sum(not any(_touches(span, value) for value in sample.spans) for span in findings)


def secrets() -> dict[str, Score]:
    """Each issuer's recall. The texts without a secret have the findings that are wrong."""
    return _by_kind("secrets", _finding(SecretFinder()))


def urls() -> Score:
    return _together(_by_kind("urls", _finding(UrlFinder([], ["evil.example"]), lower=True)))


def words() -> Score:
    forms = ["bluebird", "project atlas"]
    return _together(_by_kind("words", _finding(WordFinder(forms, whole=True), lower=True, lookalikes=True)))


def personal() -> dict[str, Score]:
    """Each entity over its own texts, and over all others. A part of another's value is neither right nor wrong."""
    scores = {entity: Score() for entity in ENTITIES}
    for entity, score in scores.items():
        spans = _finding(EntityFinder(entity))
        for sample in samples_of("personal"):
            findings = spans(sample.text)
            if sample.kind == entity or not sample.spans:
                score.add(sample, findings)
            else:
                others = [span for span in findings if not any(_touches(span, value) for value in sample.spans)]
                score.add(sample._replace(spans=()), others)
    return scores


def languages() -> dict[str, Score]:
    """Each language denied alone, with the default confidence. Needs the extra `languages`."""
    from config.schema.guards import LanguageGuardConfig
    from gateway.features.guards.judges.languages import LanguageJudge

    samples = samples_of("languages")
    scores = dict[str, Score]()
    for language in dict.fromkeys(sample.kind for sample in samples):
        guard = {"name": "g", "kind": "language", "deny": [language], "action": "block"}
        judge, score = LanguageJudge(LanguageGuardConfig.model_validate(guard)), Score()
        for sample in samples:
            is_denied = asyncio.run(judge.finds(sample.text, None))  # type: ignore[arg-type]  # it calls no model
            own = sample if sample.kind == language else sample._replace(spans=())
            score.add(own, [(0, len(sample.text))] if is_denied else [])
        scores[language] = score
    return scores


def _by_kind(file: str, spans: Spans) -> dict[str, Score]:
    scores = dict[str, Score]()
    for sample in samples_of(file):
        scores.setdefault(sample.kind, Score()).add(sample, spans(sample.text))
    return scores


def _together(scores: dict[str, Score]) -> Score:
    return total(scores.values())


def total(scores: Iterable[Score]) -> Score:
    whole = Score()
    for score in scores:
        whole = Score(
            whole.values + score.values,
            whole.caught + score.caught,
            whole.findings + score.findings,
            whole.wrong + score.wrong,
        )
    return whole


def _finding(finder: Finder, *, lower: bool = False, lookalikes: bool = False) -> Spans:
    """The spans of a finder in an original text, as a guard reads it: one character of context stands before it."""

    def spans(text: str) -> list[Span]:
        form = fold("\n" + text, lower, lookalikes, not isinstance(finder, EntityFinder), True)
        if isinstance(finder, EntityFinder):
            findings = finder.all(form.text)
        else:
            findings, at = [], 1
            while at < len(form.text) and (span := finder.find(form.text, at)) is not None:
                findings.append(span)
                at = max(span[1], at + 1)
        return [(begin - 1, end - 1) for begin, end in (form.span(*span) for span in findings)]

    return spans


def _covers(span: Span, value: Span) -> bool:
    return span[0] <= value[0] and value[1] <= span[1]


def _touches(span: Span, value: Span) -> bool:
    return span[0] < value[1] and value[0] < span[1]
