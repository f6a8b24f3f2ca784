"""A model's folder → its configuration, from either of the two files, from those of other projects, or without one.

Label files, first values of states and warm-up data are beside the versions, and the configuration names them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from google.protobuf import json_format

from adapters.wire.protos import model_config
from config.document import Document, Lines
from config.place import Place
from config.problem import ConfigError, Problem
from runtimes.tensor.configuration import foreign, message, model_yaml, pbtxt, triton
from runtimes.tensor.configuration.checks import check
from runtimes.tensor.configuration.complaint import Complaint
from runtimes.tensor.configuration.listed import ListedFolder
from runtimes.tensor.configuration.model_config import (
    ENSEMBLE,
    ExplainRules,
    ModelConfig,
    SequenceState,
    TensorSpec,
    Warmup,
)
from runtimes.tensor.configuration.triton import UnservedError

PBTXT = "config.pbtxt"
YAML = "model.yaml"
MAX_LABELS = 16 << 20

FILES: Mapping[str, tuple[str, ...]] = {
    "onnx": ("model.onnx",),
    "torch": ("model.pt", "model.pt2", "model.safetensors", "model.pth"),
    "openvino": ("model.xml",),
    "tensorflow": ("model.savedmodel", "saved_model.pb"),
    "python": ("model.py",),
    "sklearn": ("model.skops", "model.joblib", "model.pkl"),
    "xgboost": ("model.ubj", "model.json", "xgboost.ubj", "xgboost.json"),
    "lightgbm": ("model.txt", "lightgbm.txt"),
    "catboost": ("model.cbm", "model.cb", "catboost.cbm"),
}
"""Names of a version's file by backend, for configurations without a name. They select the backend, too."""
_SIZES = ("max_batch_size", "maxBatchSize")
WrittenPlace = Callable[[Place, Container[Place]], Place]
"""Converts a place of `ModelConfig` to a place of the file, which has the lines of these places."""
_SUFFIXES = {Path(name).suffix: backend for backend, names in FILES.items() for name in names} | {".pmml": "pmml"}
"""PMML has no backend, and is refused by this name."""


def usual_file(backend: str, folder: Path) -> str:
    """The name of a version's file without one in its configuration; empty if no usual file exists."""
    return next((name for name in FILES.get(backend, ()) if (folder / name).exists()), "")


@dataclass(frozen=True, slots=True)
class Reading:
    """A configuration, and warnings."""

    config: ModelConfig
    warnings: tuple[Problem, ...] = ()


def read_model(folder: Path, name: str, version_folders: Iterable[Path], listed: ListedFolder | None = None) -> Reading:
    """The configuration of the model in a folder. Blocks for the disk. Raises ConfigError with every problem.

    `listed` is what the list of another server's repository tells.
    """
    return _listed(_read(folder, name, tuple(version_folders), listed), folder, listed)


def _listed(reading: Reading, folder: Path, listed: ListedFolder | None) -> Reading:
    """The reading, with warnings of what the list tells in vain."""
    unused = () if listed is None else listed.unused
    more = [Problem(str(folder), None, field, "has no effect here", is_warning=True) for field in unused]
    return replace(reading, warnings=(*reading.warnings, *more))


def _read(folder: Path, name: str, version_folders: tuple[Path, ...], listed: ListedFolder | None) -> Reading:
    ours = (PBTXT,) if listed is not None and listed.is_alone else (PBTXT, YAML)
    written = [file for file in ours if (folder / file).is_file()]
    if len(written) > 1:
        raise ConfigError([Problem(str(folder / YAML), None, "", f"is beside a {PBTXT}: keep one of them")])
    if written == [YAML]:
        config, doc = model_yaml.read(folder / YAML, name)
        return _finished(config, doc, model_yaml.written_place, folder, version_folders, listed)
    if written == [PBTXT]:
        sent, doc = pbtxt.read(folder / PBTXT)
        return _of_message(sent, doc, name, folder, version_folders, listed)
    doc = Document(str(folder))
    return _finished(ModelConfig(name, ""), doc, model_yaml.written_place, folder, version_folders, listed)


def read_override(
    text: str, name: str, folder: Path, version_folders: Iterable[Path], listed: ListedFolder | None = None
) -> Reading:
    """A configuration in Triton's JSON, sent along with a load, in place of the file in `folder`."""
    doc = Document(f"the configuration sent for {name}")
    sent = model_config.ModelConfig()
    try:
        json_format.Parse(text, sent)
        written = json.loads(text)
    except (json_format.ParseError, ValueError, RecursionError) as error:
        raise ConfigError([doc.problem((), f"is not Triton's JSON: {error}")]) from None
    doc.lines.update({(key,): Lines(1, 1) for key in _SIZES if key in written})
    return _of_message(sent, doc, name, folder, tuple(version_folders), listed)


def _of_message(
    sent: Any, doc: Document, name: str, folder: Path, version_folders: tuple[Path, ...], listed: ListedFolder | None
) -> Reading:
    try:
        config, warnings = triton.from_message(sent, name)
    except UnservedError as error:
        raise ConfigError(_problems(error.complaints, doc, _as_written)) from None
    config = model_yaml.applied(config, doc)
    reading = _finished(config, doc, message.written_place, folder, version_folders, listed)
    problems = _problems(warnings, doc, _as_written)
    return replace(reading, warnings=(*reading.warnings, *(replace(one, is_warning=True) for one in problems)))


def _as_written(place: Place, lines: Container[Place]) -> Place:
    """The place itself, if it is already a place of the file."""
    return place


def _finished(
    config: ModelConfig,
    doc: Document,
    written: WrittenPlace,
    folder: Path,
    version_folders: tuple[Path, ...],
    listed: ListedFolder | None,
) -> Reading:
    if complaints := list(check(config)):
        raise ConfigError(_problems(complaints, doc, written))
    if config.ensemble is not None:
        config = replace(config, backend=ENSEMBLE, platform=ENSEMBLE)
    files = _Files(folder)
    config = replace(config, batch="written" if any((key,) in doc.lines for key in _SIZES) else "")
    if listed is not None:
        config = foreign.over(listed.config, config)
    config, unused = foreign.described(config, version_folders)
    if not (config.backend or config.default_model_filename or _backend(config, version_folders)):
        newest_first = map(foreign.kserve_file, reversed(version_folders))
        file, backend = next((one for one in newest_first if one != ("", "")), ("", ""))
        config = replace(config, backend=backend, default_model_filename=file)
    config = replace(
        config,
        backend=config.backend or _backend(config, version_folders),
        outputs=tuple(files.labelled(spec, i) for i, spec in enumerate(config.outputs)),
        warmup=tuple(files.warmup(warmup, i) for i, warmup in enumerate(config.warmup)),
    )
    if (batching := config.sequence_batching) is not None:
        states = tuple(files.initial(state, i) for i, state in enumerate(batching.states))
        config = replace(config, sequence_batching=replace(batching, states=states))
    if config.drift is not None and not any(
        (at / config.drift.reference).is_file() for at in (*version_folders, folder)
    ):
        message = f"{config.drift.reference} is neither in the folder of a version nor beside the versions"
        raise ConfigError(_problems([Complaint(("drift", "reference"), message)], doc, written))
    if config.explain is not None:
        files.background(config.explain)
    if files.complaints:
        raise ConfigError(_problems(files.complaints, doc, written))
    if not config.backend:
        names = ", ".join(names[0] for names in FILES.values())
        raise ConfigError([doc.problem(("backend",), f"is required: no version has a file of a usual name ({names})")])
    warnings = [Problem(str(folder), None, field, "has no effect here", is_warning=True) for field in unused]
    return Reading(config, tuple(warnings))


def _backend(config: ModelConfig, version_folders: Iterable[Path]) -> str:
    if config.default_model_filename:
        return _SUFFIXES.get(Path(config.default_model_filename).suffix, "")
    for folder in version_folders:
        for backend in FILES:
            if usual_file(backend, folder):
                return backend
    return ""


def _problems(complaints: Iterable[Complaint], doc: Document, written: WrittenPlace) -> list[Problem]:
    problems = [doc.problem(written(place, doc.lines), text, suggestion) for place, text, suggestion in complaints]
    return sorted(problems, key=lambda problem: problem.line or 0)


class _Files:
    """Reads the files that a configuration names."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.complaints: list[Complaint] = []

    def labelled(self, spec: TensorSpec, index: int) -> TensorSpec:
        """The output with the classes of its label file."""
        if not spec.label_file:
            return spec
        content = self._content((), spec.label_file, ("outputs", index, "label_file"))
        try:
            return replace(spec, labels=tuple(content.decode().splitlines()))
        except UnicodeDecodeError:
            self.complaints.append(Complaint(("outputs", index, "label_file"), "is not UTF-8 text"))
            return spec

    def initial(self, state: SequenceState, index: int) -> SequenceState:
        """The state with its first value."""
        if not state.initial_file:
            return state
        place = ("sequence_batching", "states", index, "initial_file")
        return replace(state, initial=self._content(("initial_state",), state.initial_file, place))

    def warmup(self, warmup: Warmup, index: int) -> Warmup:
        """The same configuration. Each file that it names must exist."""
        for i, spec in enumerate(warmup.inputs):
            if spec.data.startswith("file:"):
                self._content(("warmup",), spec.data.removeprefix("file:"), ("warmup", index, "inputs", i, "data"))
        return warmup

    def background(self, explain: ExplainRules) -> None:
        """The rows for explanations must exist."""
        if explain.background:
            self._content((), explain.background, ("explain", "background"))

    def _content(self, within: tuple[str, ...], name: str, place: Place) -> bytes:
        folder = self._folder.joinpath(*within).resolve()
        path = (folder / name).resolve()
        if not path.is_relative_to(folder):
            self.complaints.append(Complaint(place, f"must lie in the model's {'/'.join(within) or 'own'} folder"))
            return b""
        try:
            with path.open("rb") as file:
                content = file.read(MAX_LABELS + 1)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not a file name"
            self.complaints.append(Complaint(place, f"{path.name} cannot be read: {reason}"))
            return b""
        if len(content) > MAX_LABELS:
            self.complaints.append(Complaint(place, f"{path.name} is larger than {MAX_LABELS >> 20} MiB"))
        return content
