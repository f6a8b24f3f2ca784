"""Presidio's engine. It is imported where it is made: it and spaCy take seconds."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec


class NamedEntity(msgspec.Struct, frozen=True):
    """One entity of a text. `start` and `end` count code points."""

    start: int
    end: int
    entity_type: str
    score: float


class Analyzer(Protocol):
    """Finds entities."""

    def entities(
        self, text: str, language: str, kinds: Sequence[str] | None, threshold: float | None
    ) -> list[NamedEntity]:
        """The entities of some kinds, or of all. Raises `ValueError` for a language or kinds that it does not have."""
        ...


class NoPipeline(Exception):
    """A pipeline of spaCy is not installed. The message is one line."""


class PresidioAnalyzer:
    """Presidio with a pipeline of spaCy for each language: the name of a package, or a folder.

    Of its recognisers it has those of the pipelines. The others look for what has a form of its own, which guards find
    themselves, and some of them download lists.
    """

    def __init__(self, pipelines: Mapping[str, str]) -> None:
        """Raises `NoPipeline`, and `ModuleNotFoundError` without Presidio."""
        from presidio_analyzer import AnalyzerEngine, RecognizerRegistry
        from presidio_analyzer.nlp_engine import NlpEngineProvider
        from presidio_analyzer.predefined_recognizers import SpacyRecognizer
        from spacy.util import is_package

        for name in pipelines.values():
            if not is_package(name) and not Path(name).is_dir():  # Presidio would download it
                raise NoPipeline(f"spaCy's pipeline {name} is not installed: run `python -m spacy download {name}`")
        models = [{"lang_code": language, "model_name": name} for language, name in pipelines.items()]
        provider = NlpEngineProvider(nlp_configuration={"nlp_engine_name": "spacy", "models": models})
        languages = list(pipelines)
        named = [SpacyRecognizer(supported_language=language) for language in languages]
        self._engine: Any = AnalyzerEngine(
            registry=RecognizerRegistry(named, supported_languages=languages),
            nlp_engine=provider.create_engine(),
            supported_languages=languages,
        )
        self._languages = frozenset(languages)

    def entities(
        self, text: str, language: str, kinds: Sequence[str] | None, threshold: float | None
    ) -> list[NamedEntity]:
        """See `Analyzer.entities`."""
        if language not in self._languages:
            raise ValueError(f"no pipeline has the language {language[:64]!r}")
        spans = self._engine.analyze(
            text=text, language=language, entities=None if kinds is None else list(kinds), score_threshold=threshold
        )
        return [NamedEntity(span.start, span.end, span.entity_type, float(span.score)) for span in spans]
