"""Folders of Hugging Face, also within those of MLflow and MLServer: which are recognised, and their tasks."""

import contextlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from config.problem import ConfigError
from runtimes.tensor.configuration import hugging_face
from runtimes.tensor.configuration.hugging_face import TASKS, UnservedTask, task_of
from runtimes.tensor.configuration.model_config import DynamicBatching
from runtimes.tensor.configuration.reading import Reading, read_model
from runtimes.tensor.huggingface.folder import opened
from runtimes.tensor.huggingface.tensors import signature
from runtimes.tensor.interfaces import ModelLoadError
from runtimes.tensor.models.repository import Repository, RepositoryError, Root

pytestmark = pytest.mark.plain

BERT: dict[str, Any] = {"model_type": "bert", "architectures": ["BertForSequenceClassification"], "hidden_size": 16}


def save(folder: Path, config: Any = BERT, weights: str = "model.safetensors") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / weights).write_bytes(b"")
    return folder


def reading(folder: Path) -> Reading:
    model = Repository(folder.parent).find(folder.name)
    return read_model(model.path, model.name, [model.version(number) for number in model.versions])


def refusal(folder: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        reading(folder)
    return str(caught.value)


@pytest.mark.parametrize("version", ["", "3"])
@pytest.mark.parametrize("weights", ["model.safetensors", "model-00001-of-00002.safetensors", "pytorch_model.bin"])
def test_a_folder_is_a_model_as_it_is(weights: str, version: str, tmp_path: Path) -> None:
    save(tmp_path / "m" / version, weights=weights)
    config = reading(tmp_path / "m").config
    assert (config.backend, config.default_model_filename) == ("transformers", "")


def test_a_snapshot_that_was_pulled_is_a_model_itself(tmp_path: Path) -> None:
    save(tmp_path)
    repository = Repository(Root(tmp_path, "hf:org/reviews", "reviews", is_pulled=True))
    assert [*repository.scan().models] == ["reviews"]
    assert repository.find("reviews").versions == (1,)


def test_a_repository_that_is_a_folder_of_hugging_face_is_one_model(tmp_path: Path) -> None:
    """Its own folders, such as one with the model in another format, are no models."""
    folder = save(tmp_path / "reviews")
    (folder / "onnx").mkdir()
    (folder / "onnx" / "model.onnx").write_bytes(b"")
    repository = Repository(folder)
    assert [*repository.scan().models] == ["reviews"]
    assert repository.find("reviews").version(1) == folder
    with pytest.raises(RepositoryError, match="there is no model onnx"):
        repository.find("onnx")


def test_our_own_configuration_comes_first(tmp_path: Path) -> None:
    folder = save(tmp_path / "m")
    (folder / "model.yaml").write_text("max_batch_size: 2\nparameters: {task: zero-shot-classification}\n")
    config = reading(folder).config
    assert (config.backend, config.max_batch_size) == ("transformers", 2)
    assert opened(config, folder)[2].task == "zero-shot-classification"


@pytest.mark.parametrize(
    "spoiled",
    [
        lambda folder: (folder / "config.json").write_text("[]"),
        lambda folder: (folder / "config.json").write_text("{"),
        lambda folder: (folder / "config.json").write_text('{"size": 3}'),
        lambda folder: (folder / "config.json").unlink(),
        lambda folder: (folder / "model.safetensors").unlink(),
        lambda folder: (folder / "model.py").write_text(""),
    ],
)
def test_other_folders_are_not_taken_for_one(spoiled: Any, tmp_path: Path) -> None:
    folder = save(tmp_path / "m")
    assert hugging_face.is_folder(folder)
    spoiled(folder)
    assert not hugging_face.is_folder(folder)


@pytest.mark.parametrize(
    ("architecture", "task"),
    [
        ("BertForSequenceClassification", "text-classification"),
        ("LlamaForSequenceClassification", "text-classification"),
        ("RobertaForTokenClassification", "token-classification"),
        ("DistilBertForMaskedLM", "fill-mask"),
        ("BertForQuestionAnswering", "question-answering"),
        ("XLMRobertaModel", "feature-extraction"),
        ("ViTForImageClassification", "image-classification"),
        ("DetrForObjectDetection", "object-detection"),
        ("Wav2Vec2ForCTC", "automatic-speech-recognition"),
        ("WhisperForConditionalGeneration", "automatic-speech-recognition"),
    ],
)
def test_the_architecture_selects_the_task(architecture: str, task: str) -> None:
    assert task_of("", {"architectures": [architecture]}) == task


@pytest.mark.parametrize(
    ("written", "task"),
    [
        ("sentiment-analysis", "text-classification"),
        ("sequence_classification", "text-classification"),
        ("ner", "token-classification"),
        ("fill_mask", "fill-mask"),
    ],
)
def test_names_of_other_projects_are_tasks(written: str, task: str) -> None:
    assert task_of(written, BERT) == task


@pytest.mark.parametrize("name", ["LlamaForCausalLM", "GPT2LMHeadModel", "T5ForConditionalGeneration"])
def test_a_generator_of_text_is_directed_to_the_llm_runtime(name: str) -> None:
    with pytest.raises(UnservedTask, match=f"{name} generates text: serve it with `runtime: {{kind: llm}}`"):
        task_of("", {"architectures": [name]})


@pytest.mark.parametrize("task", ["text-generation", "summarization", "translation_en_to_de"])
def test_a_task_of_generation_is_directed_to_the_llm_runtime(task: str) -> None:
    with pytest.raises(UnservedTask, match="kind: llm"):
        task_of(task, BERT)


def mlflow(folder: Path, **fields: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    flavors = {"python_function": {}, "transformers": {"task": "fill-mask", "framework": "pt", **fields}}
    (folder / "MLmodel").write_text(yaml.safe_dump({"flavors": flavors}))
    return folder


def test_the_flavor_of_mlflow(tmp_path: Path) -> None:
    fields = {"model_binary": "model", "components": ["tokenizer", "image_processor"], "source_model_name": "bert"}
    config = reading(mlflow(tmp_path / "m", **fields)).config
    assert (config.backend, config.default_model_filename) == ("transformers", "model")
    parts = {"tokenizer": "components/tokenizer", "processor": "components/image_processor"}
    assert config.parameters == {"task": "fill-mask", **parts}


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"source_model_name": "bert", "source_model_revision": "0a1b"}, "save the model with save_pretrained=True"),
        ({"model_binary": "model", "peft_adaptor": "peft"}, "merge the adapter into the model"),
        ({"model_binary": "../other"}, "must lie in the model's own folder"),
        ({"model_binary": "model", "components": "tokenizer"}, "`components` must be a list"),
    ],
)
def test_flavors_that_cannot_be_served_are_refused(fields: dict[str, Any], reason: str, tmp_path: Path) -> None:
    assert reason in refusal(mlflow(tmp_path / "m", **fields))


def mlserver(folder: Path, extra: Any, **parameters: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    settings = {
        "implementation": "mlserver_huggingface.HuggingFaceRuntime",
        "parameters": {"extra": extra, **parameters},
        "max_batch_size": 4,
        "max_batch_time": 0.1,
    }
    (folder / "model-settings.json").write_text(json.dumps(settings))
    return folder


def test_the_settings_of_mlserver(tmp_path: Path) -> None:
    extra = {"task": "ner", "pretrained_model": "./files", "pretrained_tokenizer": "words", "device": -1}
    read = reading(mlserver(tmp_path / "m", extra))
    assert (read.config.backend, read.config.default_model_filename) == ("transformers", "files")
    assert read.config.parameters == {"task": "ner", "tokenizer": "words"}
    assert read.config.dynamic_batching == DynamicBatching(max_queue_delay=0.1)
    assert [warning.path for warning in read.warnings] == ["device"]
    assert reading(mlserver(tmp_path / "m", {"task": "ner"}, uri="./own")).config.default_model_filename == "own"


@pytest.mark.parametrize(
    ("extra", "reason"),
    [
        ({"optimum_model": True}, "`optimum_model` is not served"),
        ({"framework": "tf"}, "`framework` must be pt"),
        ({"model_kwargs": {"trust_remote_code": True}}, "`model_kwargs` in `extra` is not read here"),
        ({"pretrained_model": "https://example.org/bert"}, "put it beside model-settings.json"),
        (["task"], "`extra` must be an object"),
    ],
)
def test_settings_that_cannot_be_obeyed_are_refused(extra: Any, reason: str, tmp_path: Path) -> None:
    assert reason in refusal(mlserver(tmp_path / "m", extra))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(
    raw=st.fixed_dictionaries(
        {"model_type": st.just("bert")},
        optional=dict.fromkeys(("architectures", "id2label", "num_labels", "hidden_size", "vocab_size"), JSON),
    ),
    task=st.sampled_from(("", *TASKS)),
)
def test_any_config_has_tensors_or_is_refused(raw: Any, task: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = save(tmp_path_factory.mktemp("any") / "m", raw)
    config = reading(folder).config
    with contextlib.suppress(ModelLoadError):
        _, content, settings = opened(config if not task else _with(config, task), folder)
        made = signature(content, settings)
        assert {"output", "embedding", "features"} & {spec.name for spec in made.outputs}


def _with(config: Any, task: str) -> Any:
    return replace(config, parameters={"task": task})
