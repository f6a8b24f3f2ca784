"""Pipelines of Hugging Face with random weights: the answers of `transformers` itself, alone and together."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runtimes.tensor.backends.registry import in_thread
from runtimes.tensor.huggingface.model import ALONE, PADDED, PipelineModel
from runtimes.tensor.interfaces import InvalidRow, ModelLoadError
from tests.support.hugging_face import LIMIT, WORDS, change, save_bert, save_model, save_tokenizer
from tests.support.pipeline_models import assert_alike, assert_json_alike, load, outputs, refused, texts

CLASSES: dict[str, Any] = {
    "id2label": {0: "bad", 1: "middling", 2: "good"},
    "label2id": {"bad": 0, "middling": 1, "good": 2},
}
ENTAILMENT: dict[str, Any] = {
    "id2label": {0: "contradiction", 1: "neutral", 2: "entailment"},
    "label2id": {"contradiction": 0, "neutral": 1, "entailment": 2},
}
ENTITIES: dict[str, Any] = {"id2label": {0: "O", 1: "B-PER", 2: "I-PER", 3: "B-LOC"}}
TEXTS = ["good", "the city of Rome is big and good", "bad , bad words !", "one", "some text with zebra xyz 12"]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pipelines")


def folder_of(root: Path, kind: str, /, **settings: Any) -> Path:
    """A folder with a model of `kind`, a class and perhaps a name of its own."""
    folder = root / kind.replace(" ", "-")
    return folder if folder.exists() else save_bert(folder, getattr(transformers, kind.split()[0]), **settings)


def classifier(root: Path) -> Path:
    return folder_of(root, "BertForSequenceClassification", **CLASSES)


def test_a_classifier_of_texts_answers_as_the_pipeline(root: Path) -> None:
    folder = classifier(root)
    config, model = load(folder)
    assert [(spec.name, spec.dims) for spec in config.outputs] == [
        ("output", ()), ("label", ()), ("score", ()), ("scores", (3,))
    ]  # fmt: skip
    assert config.outputs[3].labels == ("bad", "middling", "good")
    assert not in_thread(config)
    assert model.sharing == PADDED
    got = outputs(model, args=texts(*TEXTS))
    pipe = transformers.pipeline("text-classification", model=str(folder))
    for at, text in enumerate(TEXTS):
        (best,) = pipe(text)
        assert_json_alike(json.loads(got["output"][at]), best)
        assert got["label"][at] == best["label"].encode()
        assert got["score"][at] == pytest.approx(best["score"], abs=1e-5)
        scores = {one["label"]: one["score"] for one in pipe(text, top_k=None)}
        np.testing.assert_allclose(got["scores"][at], [scores[name] for name in config.outputs[3].labels], atol=1e-5)
    assert_alike(model, [{"args": texts(text)} for text in TEXTS])


def test_classes_of_one_name_have_their_own_scores(root: Path) -> None:
    folder = save_bert(root / "cranes", transformers.BertForSequenceClassification, num_labels=3)
    change(folder / "config.json", id2label={"0": "crane", "1": "owl", "2": "crane"}, label2id={"crane": 2, "owl": 1})
    _, model = load(folder)
    got = outputs(model, args=texts(*TEXTS))
    np.testing.assert_allclose(got["scores"].sum(axis=1), 1, atol=1e-5)
    assert (got["scores"] > 0).all()


def test_pairs_of_texts_are_classified_together(root: Path) -> None:
    folder = classifier(root)
    config, model = load(folder, pairs="true")
    assert [spec.name for spec in config.inputs] == ["args", "text_pair"]
    got = outputs(model, args=texts("good city", "one"), text_pair=texts("big words", "the longer text"))
    pipe = transformers.pipeline("text-classification", model=str(folder))
    expected = pipe([{"text": "good city", "text_pair": "big words"}, {"text": "one", "text_pair": "the longer text"}])
    np.testing.assert_allclose(got["score"], [one["score"] for one in expected], atol=1e-5)


@given(rows=st.lists(st.text(max_size=12), min_size=1, max_size=5))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_texts_have_the_same_values_together_as_alone(root: Path, rows: list[str]) -> None:
    model = _model_of(classifier(root))
    assert_alike(model, [{"args": texts(row.encode(errors="replace"))} for row in rows])


@cache
def _model_of(folder: Path) -> PipelineModel:
    return load(folder)[1]


@given(content=st.binary(max_size=60))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_are_classified_or_refused_alone(root: Path, content: bytes) -> None:
    answer = _model_of(classifier(root)).infer({"args": texts("good", content)})
    made, errors = answer if isinstance(answer, tuple) else (answer, {})
    assert 0 not in errors
    assert made["scores"].shape == (2, 3)
    assert all(isinstance(one, InvalidRow) for one in errors.values())


def test_rows_that_cannot_be_read_are_refused_alone(root: Path) -> None:
    _, model = load(classifier(root))
    rows = texts("good", b"bad \xff", "one " * LIMIT, "city", b"a" * (1 << 20) + b"b")
    errors = refused(model, args=rows)
    assert errors == {
        1: "`args` is not UTF-8 text: byte 4 is wrong.",
        2: f"`args` has {LIMIT + 2} tokens, and {LIMIT} is the most.",
        4: "`args` has 1048577 bytes, and 1048576 is the most.",
    }
    made, _ = model.infer({"args": rows})
    np.testing.assert_allclose(made["scores"][3], outputs(model, args=texts("city"))["scores"][0], atol=1e-5)


def test_long_texts_are_cut_and_reported_on_demand(root: Path) -> None:
    folder = classifier(root)
    _, model = load(folder, too_long="cut", max_tokens="8")
    got = outputs(model, args=texts("one " * 50, "good"))
    assert got["truncated"].tolist() == [True, False]
    pipe = transformers.pipeline("text-classification", model=str(folder))
    expected = pipe("one " * 50, truncation=True, max_length=8)[0]["score"]
    assert got["score"][0] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("aggregation", ["none", "simple", "first"])
def test_tokens_are_classified_as_the_pipeline_does(aggregation: str, root: Path) -> None:
    folder = folder_of(root, "BertForTokenClassification", **ENTITIES)
    config, model = load(folder, aggregation=aggregation)
    assert set(config.counted) == {"labels", "scores", "words", "start", "end"}
    got = outputs(model, args=texts(*TEXTS))
    pipe = transformers.pipeline("token-classification", model=str(folder), aggregation_strategy=aggregation)
    for at, text in enumerate(TEXTS):
        entities = pipe(text)
        count = got["count"][at]
        assert count == len(entities)
        names = [one.get("entity_group", one.get("entity")).encode() for one in entities]
        assert got["labels"][at][:count].tolist() == names
        assert got["start"][at][:count].tolist() == [one["start"] for one in entities]
        np.testing.assert_allclose(got["scores"][at][:count], [one["score"] for one in entities], atol=1e-5)
        assert not got["labels"][at][count:].any()
        assert [one["word"] for one in json.loads(got["output"][at])] == [one["word"] for one in entities]
    assert_alike(model, [{"args": texts(text)} for text in TEXTS])


def test_masks_are_filled_as_the_pipeline_does(root: Path) -> None:
    folder = folder_of(root, "BertForMaskedLM")
    _, model = load(folder, top_k="3")
    rows = ["the [MASK] is big", "[MASK] city of [MASK]"]
    got = outputs(model, args=texts(*rows))
    assert got["count"].tolist() == [1, 2]
    pipe = transformers.pipeline("fill-mask", model=str(folder), top_k=3)
    assert_json_alike(json.loads(got["output"][0]), pipe(rows[0]))
    assert_json_alike(json.loads(got["output"][1]), pipe(rows[1]))
    assert got["tokens"][0, 0].tolist() == [one["token_str"].encode() for one in pipe(rows[0])]
    assert_alike(model, [{"args": texts(row)} for row in rows])
    assert refused(model, args=texts("no mask")) == {0: "`args` has no mask, which is written [MASK]."}


@pytest.mark.parametrize("multi_label", [False, True])
def test_labels_of_the_request_are_judged_as_the_pipeline_does(multi_label: bool, root: Path) -> None:
    folder = folder_of(root, "BertForSequenceClassification of entailment", **ENTAILMENT)
    more = {"multi_label": "true"} if multi_label else {}
    _, model = load(folder, task="zero-shot-classification", hypothesis_template="some {} text", **more)
    pipe = transformers.pipeline("zero-shot-classification", model=str(folder), hypothesis_template="some {} text")
    rows = [("good city", ("big", "bad")), ("one", ("words", "city")), ("numbers , and signs", ("big", "bad"))]
    labels = np.stack([texts(*own) for _, own in rows])
    got = outputs(model, args=texts(*(text for text, _ in rows)), candidate_labels=labels)
    for at, (text, own) in enumerate(rows):
        expected = pipe(text, list(own), multi_label=multi_label)
        assert_json_alike(json.loads(got["output"][at]), expected)
        assert got["labels"][at].tolist() == [label.encode() for label in expected["labels"]]
        np.testing.assert_allclose(got["scores"][at], expected["scores"], atol=1e-5)
    errors = refused(model, args=texts("good", "good"), candidate_labels=np.stack([texts("a", "b"), texts("a", " ")]))
    assert errors == {1: "`candidate_labels` has an empty label."}


def test_features_are_those_of_the_pipeline(root: Path) -> None:
    folder = folder_of(root, "BertModel")
    _, model = load(folder)
    got = outputs(model, args=texts(*TEXTS))
    pipe = transformers.pipeline("feature-extraction", model=str(folder))
    for at, text in enumerate(TEXTS):
        (expected,) = pipe(text)
        assert got["count"][at] == len(expected)
        np.testing.assert_allclose(got["features"][at][: len(expected)], expected, atol=1e-4)
    assert_alike(model, [{"args": texts(text)} for text in TEXTS])
    _, pooled = load(folder, pooling="mean")
    vector = outputs(pooled, args=texts(TEXTS[1]))["embedding"][0]
    np.testing.assert_allclose(vector, np.mean(pipe(TEXTS[1])[0], axis=0), atol=1e-4)


def test_a_head_that_was_never_trained_is_refused(root: Path) -> None:
    folder = folder_of(root, "BertForMaskedLM")
    with pytest.raises(ModelLoadError, match=r"the weights lack .*classifier.* was not trained for text"):
        load(folder, task="text-classification")


def assert_refused(folder: Path, match: str, **parameters: str) -> None:
    with pytest.raises(ModelLoadError, match=match):
        load(folder, **parameters)


def test_parameters_are_checked_by_name(root: Path) -> None:
    folder = classifier(root)
    assert_refused(folder, "`trust_remote_code` runs code of the folder", trust_remote_code="true")
    assert_refused(folder, "`aggregation` has no effect for text-classification", aggregation="simple")
    assert_refused(folder, "`too_long` is refuse or cut, not `wrap`", too_long="wrap")
    assert_refused(folder, "`max_tokens` is 33, and the model takes 32", max_tokens="33")
    assert_refused(folder, "`agregation` is not one of this backend", agregation="simple")
    assert_refused(folder, "the task text-generation generates text: .*kind: llm", task="text-generation")
    assert_refused(folder, "must be a folder within the model's own", tokenizer="../other")


def copied(root: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "m"
    folder.mkdir()
    for path in classifier(root).iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    return folder


def test_a_folder_that_would_run_code_or_fetch_files_is_refused_by_name(root: Path, tmp_path: Path) -> None:
    folder = copied(root, tmp_path)
    config = folder / "config.json"
    change(config, model_type="newest", auto_map={"AutoConfig": "code.Config"})
    assert_refused(folder, "no model of the type newest, whose own code is never run")
    change(config, model_type="bert", auto_map=None, attn_implementation="kernels-community/flash")
    assert_refused(folder, "attn_implementation .* would be fetched")
    change(config, attn_implementation=None, quantization_config={"quant_method": "bitsandbytes"})
    assert_refused(folder, "quantized weights are not served")
    change(config, quantization_config=None, architectures=["LlamaForCausalLM"])
    assert_refused(folder, "LlamaForCausalLM generates text: serve it with `runtime: {kind: llm}`")
    change(config, architectures=["BertForMultipleChoice"])
    assert_refused(folder, "BertForMultipleChoice, which belongs to no task")
    (folder / "model.safetensors").rename(folder / "tf_model.h5")
    change(config, architectures=["BertForSequenceClassification"])
    assert_refused(folder, "no weights, .*tf_model.h5 cannot be read by PyTorch")


@pytest.mark.parametrize("file", ["config.json", "tokenizer_config.json"])
def test_code_of_a_folder_never_runs(file: str, root: Path, tmp_path: Path) -> None:
    folder = copied(root, tmp_path)
    (folder / "code.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Own: ...\n")
    names = ("AutoConfig", "AutoModelForSequenceClassification", "AutoTokenizer", "AutoImageProcessor")
    change(folder / file, auto_map=dict.fromkeys(names, "code.Own"))
    _, model = load(folder)  # by the classes of the library, which has all of them
    outputs(model, args=texts(*TEXTS))
    change(folder / "config.json", custom_pipelines={"text-classification": {"impl": "code.Own"}})
    load(folder)
    change(folder / "tokenizer_config.json", auto_map={"AutoTokenizer": ["code.Own", None]}, tokenizer_class="Own")
    assert_refused(folder, "never run here")
    assert not (tmp_path / "ran").exists()


def test_a_pickle_as_weights_runs_no_code(root: Path, tmp_path: Path) -> None:
    folder = copied(root, tmp_path)
    (folder / "model.safetensors").unlink()
    weights = transformers.BertForSequenceClassification.from_pretrained(classifier(root)).state_dict()
    torch.save(weights, folder / "pytorch_model.bin")
    _, model = load(folder)
    got, expected = (outputs(one, args=texts(*TEXTS))["scores"] for one in (model, _model_of(classifier(root))))
    np.testing.assert_allclose(got, expected, atol=1e-6)

    class Attack:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "ran",)

    torch.save({**weights, "more": Attack()}, folder / "pytorch_model.bin")
    assert_refused(folder, "UnpicklingError")
    assert not (tmp_path / "ran").exists()


def test_words_of_the_tests_are_tokens(root: Path) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(classifier(root))
    assert all(len(tokenizer(word)["input_ids"]) == 3 for word in WORDS)


def test_answers_to_questions_are_the_best_spans(root: Path) -> None:
    folder = folder_of(root, "BertForQuestionAnswering")
    _, model = load(folder)
    rows = [("big city", "the city of Rome is big and good"), ("one", "Rome"), ("3 signs", "one a longer text " * 12)]
    got = outputs(model, question=texts(*(one for one, _ in rows)), context=texts(*(text for _, text in rows)))
    network = transformers.BertForQuestionAnswering.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    for at, (question, context) in enumerate(rows):
        score, start, end = best_span(network, tokenizer, question, context)
        assert got["score"][at] == pytest.approx(score, abs=1e-5)
        assert (got["start"][at], got["end"][at]) == (start, end)
        assert got["answer"][at] == context[start:end].encode()
        assert json.loads(got["output"][at])["answer"] == context[start:end]
    assert_alike(model, [{"question": texts(question), "context": texts(context)} for question, context in rows])
    errors = refused(model, question=texts(" ", "one", "one " * 20), context=texts("one", " ", "one"))
    assert [errors[at].split(" ")[0] for at in range(3)] == ["`question`", "`context`", "`question`"]


def best_span(network: Any, tokenizer: Any, question: str, context: str) -> tuple[float, int, int]:
    """The score and characters of the best span, by trying all of them in all windows."""
    head, words = tokenizer(question)["input_ids"], tokenizer(context, add_special_tokens=False)
    room, step = LIMIT - len(head) - 1, LIMIT - len(head) - 1 - LIMIT // 4
    best = (-1.0, 0, 0)
    for at in range(0, max(len(words["input_ids"]) - (room - step), 1), step):
        part = words["input_ids"][at : at + room]
        ids = [*head, *part, tokenizer.sep_token_id]
        types = [0] * len(head) + [1] * (len(part) + 1)
        with torch.no_grad():
            answer = network(input_ids=torch.tensor([ids]), token_type_ids=torch.tensor([types]))
        places = [0, *range(len(head), len(head) + len(part))]  # the first stands for no answer
        first, last = (one[0, places].softmax(0)[1:] for one in (answer.start_logits, answer.end_logits))
        for begin in range(len(part)):
            for end in range(begin, min(begin + 15, len(part))):
                if (score := float(first[begin] * last[end])) > best[0]:
                    offsets = tokenizer(context, add_special_tokens=False, return_offsets_mapping=True)
                    spans = offsets["offset_mapping"]
                    best = score, spans[at + begin][0], spans[at + end][1]
    return best


def test_positions_of_roberta_begin_behind_its_padding(root: Path) -> None:
    folder = root / "roberta"
    folder.mkdir()
    tokens = save_tokenizer(folder)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    config = transformers.RobertaConfig(
        vocab_size=tokens,
        max_position_embeddings=LIMIT,
        pad_token_id=0,
        type_vocab_size=2,
        initializer_range=0.6,
        **sizes,
    )
    save_model(folder, transformers.RobertaForSequenceClassification, config)
    _, model = load(folder)
    assert model.sharing == PADDED
    assert refused(model, args=texts("one " * (LIMIT - 2))) == {0: "`args` has 32 tokens, and 31 is the most."}
    pipe = transformers.pipeline("text-classification", model=str(folder))
    longest = "one " * (LIMIT - 3)
    assert outputs(model, args=texts(longest))["score"][0] == pytest.approx(pipe(longest)[0]["score"], abs=1e-5)
    assert_alike(model, [{"args": texts(text)} for text in (*TEXTS, longest)])


@pytest.mark.parametrize("pad", [None, 0])
def test_a_model_without_padding_computes_its_rows_alone(pad: int | None, root: Path) -> None:
    folder = root / f"gpt2-{pad}"
    folder.mkdir()
    tokens = save_tokenizer(folder)
    config = transformers.GPT2Config(
        vocab_size=tokens, n_positions=LIMIT, n_embd=16, n_layer=1, n_head=2, initializer_range=0.6, pad_token_id=pad
    )
    save_model(folder, transformers.GPT2ForSequenceClassification, config)
    change(folder / "tokenizer_config.json", model_input_names=["input_ids", "attention_mask"])
    _, model = load(folder)
    assert model.sharing == (ALONE if pad is None else PADDED)
    pipe = transformers.pipeline("text-classification", model=str(folder))
    expected = [pipe(text)[0]["score"] for text in TEXTS]
    np.testing.assert_allclose(outputs(model, args=texts(*TEXTS))["score"], expected, atol=1e-5)
    assert_alike(model, [{"args": texts(text)} for text in TEXTS])


def test_the_trial_is_left_out_on_demand(root: Path) -> None:
    _, model = load(classifier(root), probe="false")
    assert model.sharing == ALONE
    assert_alike(model, [{"args": texts(text)} for text in TEXTS])


def test_computing_in_half_the_bits_shares_no_batch_that_changes_answers(root: Path) -> None:
    _, model = load(classifier(root), dtype="bfloat16")
    assert_alike(model, [{"args": texts(text)} for text in TEXTS])
