"""The model of a folder, its tokenizer or processor, and the pipeline of its task.

Nothing is fetched, and no code of the folder runs: files are opened as local ones, weights are read as data only, and
classes are those of the installed `transformers`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from runtimes.tensor.configuration.hugging_face import (
    FEATURES,
    MASKS,
    OBJECTS,
    PICTURES,
    QUESTIONS,
    SPEECH,
    TEXTS,
    TOKENS,
    ZERO_SHOT,
    settings_of,
)
from runtimes.tensor.huggingface.folder import PipelineSettings
from runtimes.tensor.huggingface.pictures import ImageClassification, ObjectDetection
from runtimes.tensor.huggingface.questions import QuestionAnswering
from runtimes.tensor.huggingface.rows import PipelineTask
from runtimes.tensor.huggingface.sound import SpeechRecognition
from runtimes.tensor.huggingface.texts import (
    FeatureExtraction,
    FillMask,
    TextClassification,
    TokenClassification,
)
from runtimes.tensor.huggingface.zero_shot import ZeroShot
from runtimes.tensor.interfaces import Device, ModelLoadError

_MODELS: Final = {
    TEXTS: "AutoModelForSequenceClassification",
    ZERO_SHOT: "AutoModelForSequenceClassification",
    TOKENS: "AutoModelForTokenClassification",
    MASKS: "AutoModelForMaskedLM",
    QUESTIONS: "AutoModelForQuestionAnswering",
    FEATURES: "AutoModel",
    PICTURES: "AutoModelForImageClassification",
    OBJECTS: "AutoModelForObjectDetection",
    SPEECH: "AutoModelForSpeechSeq2Seq",
}
_PIPELINES: Final = {
    TEXTS: "TextClassificationPipeline",
    ZERO_SHOT: "ZeroShotClassificationPipeline",
    TOKENS: "TokenClassificationPipeline",
    MASKS: "FillMaskPipeline",
    QUESTIONS: "FeatureExtractionPipeline",  # only to compute: see `questions`
    FEATURES: "FeatureExtractionPipeline",
    PICTURES: "ImageClassificationPipeline",
    OBJECTS: "ObjectDetectionPipeline",
    SPEECH: "AutomaticSpeechRecognitionPipeline",
}
_TASKS: Final[Mapping[str, type[PipelineTask]]] = {
    TEXTS: TextClassification,
    ZERO_SHOT: ZeroShot,
    TOKENS: TokenClassification,
    MASKS: FillMask,
    QUESTIONS: QuestionAnswering,
    FEATURES: FeatureExtraction,
    PICTURES: ImageClassification,
    OBJECTS: ObjectDetection,
    SPEECH: SpeechRecognition,
}
_LOCAL: Final = {"local_files_only": True, "trust_remote_code": False}
_UNUSED_HEADS: Final = ("pooler.",)
"""Weights that features do not need."""


def loaded(
    place: Path, folder: Path, raw: Mapping[str, Any], settings: PipelineSettings, device: Device
) -> PipelineTask:
    """The task of a folder, ready to compute. Raises `ModelLoadError`."""
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_HUB_DISABLE_TELEMETRY"):
        os.environ.setdefault(name, "1")
    import torch
    import transformers

    transformers.utils.logging.disable_progress_bar()
    if device.threads:
        torch.set_num_threads(device.threads)
    if raw.get("model_type") not in transformers.CONFIG_MAPPING:
        code = ", whose own code is never run here" if raw.get("auto_map") else ""
        kind = str(raw.get("model_type"))[:100]
        raise ModelLoadError(f"transformers {transformers.__version__} has no model of the type {kind}{code}")
    try:
        architecture = str((raw.get("architectures") or [""])[0])
        model = _model(place, settings, is_ctc=settings.task == SPEECH and architecture.endswith("ForCTC"))
        parts = _parts(place, folder, settings)
    except ValueError as error:
        if "trust_remote_code" in str(error):
            raise ModelLoadError("the folder needs code of its own (auto_map), which is never run here") from None
        raise
    more = {"aggregation_strategy": settings.aggregation} if settings.task == TOKENS else {}
    where = "cpu" if device.gpu is None else f"cuda:{device.gpu}"
    pipe = getattr(transformers, _PIPELINES[settings.task])(model=model, device=torch.device(where), **parts, **more)
    return _TASKS[settings.task](pipe, settings)


def _model(place: Path, settings: PipelineSettings, *, is_ctc: bool) -> Any:
    """Raises `ModelLoadError` if the file lacks weights of the task: they would be random."""
    import transformers

    kind = "AutoModelForCTC" if is_ctc else _MODELS[settings.task]
    model, report = getattr(transformers, kind).from_pretrained(
        place,
        dtype=settings.dtype,
        weights_only=True,
        use_safetensors=any(place.glob("*.safetensors")),
        output_loading_info=True,
        **_LOCAL,
    )
    missing = sorted(report["missing_keys"])
    if settings.task == FEATURES:
        missing = [name for name in missing if not name.startswith(_UNUSED_HEADS)]
    if missing:
        shown = ", ".join(missing[:5]) + (" …" if len(missing) > 5 else "")
        raise ModelLoadError(f"the weights lack {shown}: the model was not trained for {settings.task}")
    if not model.config.label2id:  # older files have one of both alone
        model.config.label2id = {name: number for number, name in (model.config.id2label or {}).items()}
    return model.eval()


def _parts(place: Path, folder: Path, settings: PipelineSettings) -> dict[str, Any]:
    """The tokenizer or the processor."""
    import transformers

    words = folder / settings.tokenizer if settings.tokenizer else place
    senses = folder / settings.processor if settings.processor else place
    parts: dict[str, Any] = {}
    if settings.task in (PICTURES, OBJECTS, SPEECH):
        _check_class(senses / "preprocessor_config.json", "image_processor_type", "feature_extractor_type")
    if settings.task in (PICTURES, OBJECTS):
        # Pillow's, also where torchvision is installed: the same numbers everywhere.
        parts["image_processor"] = transformers.AutoImageProcessor.from_pretrained(senses, backend="pil", **_LOCAL)
        return parts
    if settings.task == SPEECH:
        parts["feature_extractor"] = transformers.AutoFeatureExtractor.from_pretrained(senses, **_LOCAL)
    _check_class(words / "tokenizer_config.json", "tokenizer_class")
    return {**parts, "tokenizer": transformers.AutoTokenizer.from_pretrained(words, **_LOCAL)}


def _check_class(path: Path, *fields: str) -> None:
    """Raises `ModelLoadError` for a class that is code of the folder: the library would take another in silence."""
    import transformers

    try:
        raw = settings_of(path) if path.is_file() else {}
    except (OSError, ValueError) as error:
        raise ModelLoadError(str(error)) from None
    name = next((str(raw[field]) for field in fields if raw.get(field)), "a class")
    if raw.get("auto_map") and not hasattr(transformers, name):
        raise ModelLoadError(f"{path.name} needs {name[:100]}, which is code of the folder and never run here")
