"""Guards of the file in the form in which they run."""

from config.checks.guards import words_of
from config.schema.guards import (
    NamedGuardConfig,
    PatternGuardConfig,
    PersonalGuardConfig,
    SecretsGuardConfig,
    UrlsGuardConfig,
    WordsGuardConfig,
)
from policies.guards.finders import Finder, PatternFinder, SecretFinder, UrlFinder, WordFinder
from policies.guards.folding import fold
from policies.guards.masking import Rule, View
from policies.guards.personal.entities import ENTITIES, EntityFinder
from policies.guards.personal.masking import PersonalRule


def rules_of(guard: NamedGuardConfig, index: int) -> list[Rule]:
    """The rules of a guard. Reads its file of words.

    Raises `OSError`, `ValueError` and `EngineMissing` for a guard that cannot be compiled.
    """
    masks = guard.mode == "enforce" and guard.action == "mask"
    view, finders = _finders(guard)
    return [Rule(index, finder, masks, view) for finder in finders]


def _finders(guard: NamedGuardConfig) -> tuple[View, list[Finder]]:
    if isinstance(guard, WordsGuardConfig):
        words = [*guard.words, *([] if guard.file is None else words_of(guard.file))]
        forms = [fold(word, True, guard.lookalikes, False, True).text for word in words]
        if not all(form.strip() for form in forms):
            raise ValueError(f"the guard {guard.name} has a word of which nothing can be seen")
        return View(True, guard.lookalikes), [WordFinder(forms, whole=guard.match == "word")]
    if isinstance(guard, PatternGuardConfig):
        return View(), [PatternFinder(pattern) for pattern in guard.patterns]
    if isinstance(guard, SecretsGuardConfig):
        return View(), [SecretFinder()]
    if isinstance(guard, PersonalGuardConfig):
        return View(), [finder for _, finder in _personal(guard)]
    assert isinstance(guard, UrlsGuardConfig)
    return View(lower=True), [UrlFinder(guard.allow, guard.deny)]


def personal_rules_of(guard: NamedGuardConfig, index: int) -> list[PersonalRule]:
    """The rules of a guard whose values answers receive again; none for any other. Raises as `rules_of`."""
    if not isinstance(guard, PersonalGuardConfig) or not guard.restores:
        return []
    return [PersonalRule(index, kind, finder) for kind, finder in _personal(guard)]


def _personal(guard: PersonalGuardConfig) -> list[tuple[str, Finder]]:
    own = [(pattern.name.upper(), PatternFinder(pattern.pattern)) for pattern in guard.patterns]
    return [*own, *((entity.upper(), EntityFinder(entity)) for entity in ENTITIES if entity in guard.entities)]
