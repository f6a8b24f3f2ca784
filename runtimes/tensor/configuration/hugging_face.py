"""Folders of Hugging Face: `config.json` beside weights, a tokenizer or a processor.

The architecture in config.json tells the task, unless the configuration has one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

CONFIG: Final = "config.json"
BACKEND: Final = "transformers"
MAX_BYTES: Final = 16 << 20
"""Of config.json, which has the names of all classes."""
WEIGHTS: Final = ("*.safetensors", "pytorch_model*.bin")
"""Files that are read. Those of the other frameworks are only recognised, to be refused by name."""
_OTHER_WEIGHTS: Final = ("tf_model*.h5", "flax_model*.msgpack")

TEXTS, TOKENS, MASKS, ZERO_SHOT, QUESTIONS, FEATURES, PICTURES, OBJECTS, SPEECH = TASKS = (
    "text-classification", "token-classification", "fill-mask", "zero-shot-classification", "question-answering",
    "feature-extraction", "image-classification", "object-detection", "automatic-speech-recognition",
)  # fmt: skip
_ALIASES: Final = {
    "sentiment-analysis": TEXTS,
    "sequence-classification": TEXTS,
    "ner": TOKENS,
    "zero-shot": ZERO_SHOT,
    "text-embedding": FEATURES,
}
"""Other names, of `transformers` and of KServe."""
_GENERATING: Final = ("text-generation", "text2text-generation", "summarization", "translation", "conversational")
_OF_ARCHITECTURE: Final = (
    *[(f"{model}ForConditionalGeneration", SPEECH) for model in ("Whisper", "Speech2Text", "Moonshine")],
    ("SpeechEncoderDecoderModel", SPEECH),
    ("*ForCTC", SPEECH),
    ("*ForSequenceClassification", TEXTS),
    ("*ForTokenClassification", TOKENS),
    ("*ForMaskedLM", MASKS),
    ("*ForQuestionAnswering", QUESTIONS),
    ("*ForImageClassification", PICTURES),
    ("*ForObjectDetection", OBJECTS),
)
_GENERATORS: Final = ("*ForCausalLM", "*LMHeadModel", "*ForConditionalGeneration")


class UnservedTask(Exception):
    """No task serves the model; the message names the change to make."""


def is_folder(folder: Path) -> bool:
    """Whether a folder is one of Hugging Face, and not a program of its own beside weights. Blocks for the disk."""
    if not (folder / CONFIG).is_file() or (folder / "model.py").is_file():
        return False
    try:
        names = [entry.name for entry in folder.iterdir() if entry.is_file()]
        has_weights = any(fnmatchcase(name, kind) for name in names for kind in (*WEIGHTS, *_OTHER_WEIGHTS))
        raw = settings_of(folder / CONFIG) if has_weights else {}
    except (OSError, ValueError):
        return False
    return isinstance(raw.get("model_type"), str) or isinstance(raw.get("architectures"), list)


def settings_of(path: Path) -> Mapping[str, Any]:
    """The object in a file of a folder. Blocks for the disk. Raises OSError, and ValueError for anything else."""
    with path.open("rb") as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise ValueError(f"{path.name} is larger than {MAX_BYTES >> 20} MiB")
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        raise ValueError(f"{path.name} is not JSON") from None
    if not isinstance(value, dict):
        raise ValueError(f"{path.name} is no object")
    return value


def task_of(written: str, raw: Mapping[str, Any]) -> str:
    """The task that is `written`, or that of the architecture in config.json. Raises `UnservedTask`."""
    if written:
        return _named(written)
    listed = raw.get("architectures")
    architecture = next((name for name in listed if isinstance(name, str)), "") if isinstance(listed, list) else ""
    for pattern, task in _OF_ARCHITECTURE:
        if fnmatchcase(architecture, pattern):
            return task
    if any(fnmatchcase(architecture, pattern) for pattern in _GENERATORS):
        raise UnservedTask(f"{architecture} generates text: serve it with `runtime: {{kind: llm}}`")
    if architecture.endswith("Model"):
        return FEATURES
    shown = architecture[:100] or "no architecture"
    raise UnservedTask(f"{CONFIG} has {shown}, which belongs to no task: set parameters: {{task: …}} to {_listed()}")


def _named(written: str) -> str:
    task = _ALIASES.get(plain := written.strip().lower().replace("_", "-"), plain)
    if task in TASKS:
        return task
    if task.startswith(_GENERATING):
        raise UnservedTask(f"the task {task} generates text: serve the model with `runtime: {{kind: llm}}`")
    raise UnservedTask(f"the task {written[:100]} is not served here: these are: {_listed()}")


def _listed() -> str:
    return ", ".join(TASKS)
