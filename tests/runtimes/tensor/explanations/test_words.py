"""Parts of the words of texts: the library run alone, places of words, and texts of any kind."""

import asyncio
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from adapters.errors import CallerError
from adapters.tensors import Inference, Tensor, join_bytes, split_bytes
from runtimes.tensor.configuration.model_config import ExplainRules, ModelConfig, TensorSpec
from runtimes.tensor.explanations import explanation, row_requests
from runtimes.tensor.explanations.explanation import Attributions, check_selection, tensors_of
from runtimes.tensor.explanations.sampled import SampledExplainer
from runtimes.tensor.explanations.words import WordMixer, words
from runtimes.tensor.interfaces import Array, ModelLoadError
from tests.runtimes.tensor import loaded
from tests.runtimes.tensor.explaining import TRUSTED, Timed, X, a_model, pickled, served
from tests.support.absent import absent

TEXTS = [
    "A good, really good film!",
    "not good at all, a bad plot",
    "bad acting",
    "fine and good",
    "bad, bad plot",
    "so",
]
LABELS = [1, 0, 0, 1, 0, 1]
YAML = (
    f"backend: sklearn\n{TRUSTED}max_batch_size: 16\ninputs: [{{name: text, datatype: BYTES, dims: [1]}}]\n"
    "outputs: [{name: predict_proba, datatype: FP64, dims: [2]}]\n"
)


def judge() -> Any:
    model = make_pipeline(CountVectorizer(ngram_range=(1, 2)), LogisticRegression(C=9))
    return model.fit(TEXTS, LABELS)


async def explained(folder: Path, texts: list[bytes], **parameters: Any) -> tuple[Attributions, dict[str, Tensor]]:
    async with served(folder) as model:
        assert model.explainer is not None
        sent = Tensor("text", "BYTES", (len(texts), 1), join_bytes(texts))
        deadline = asyncio.get_running_loop().time() + 300
        inference = Inference("m", inputs=[sent], parameters=parameters)
        target = parameters.get("target")
        check_selection(inference, model.config, target, await model.explainer.targets(deadline))
        got = await model.explainer.explain(inference, deadline)
        return got, {tensor.name: tensor for tensor in tensors_of(got, model.config, target)}


def folder_of(root: Path, explain: str) -> tuple[Path, Any]:
    model = judge()
    return a_model(root, f"{YAML}explain: {explain}\n", lambda at: joblib.dump(model, at / "model.joblib")), model


def array(tensor: Tensor) -> Array:
    return np.frombuffer(tensor.data, "<i8" if tensor.datatype == "INT64" else "<f8").reshape(tensor.shape)


@pytest.mark.processes
@pytest.mark.filterwarnings("ignore")  # of shap and numba
@pytest.mark.parametrize("method", ["auto", "kernel"])
async def test_words_have_the_values_of_shap_run_alone(tmp_path: Path, method: str) -> None:
    try:
        import shap
    except ModuleNotFoundError as error:
        absent(error)
    folder, model = folder_of(tmp_path, f"{{features: words, method: {method}}}")
    got, tensors = await explained(folder, [text.encode() for text in TEXTS[:3]])
    assert (got.method, tensors["values"].shape, got.error.max() < 1e-9) == ("exact", (3, 2, 7), True)
    entries = split_bytes(tensors["words"].data, 21, "words")
    assert entries[:7] == [b"A", b"good", b"really", b"good", b"film", b"", b""]
    for row, text in enumerate(TEXTS[:3]):
        spans = [(word.start, word.end) for word in words(text)]

        def answers(masks: Array, text: str = text, spans: Any = spans) -> Any:
            texts = []
            for mask in masks:
                made = text
                for (start, end), present in reversed(list(zip(spans, mask, strict=True))):
                    made = made if present else made[:start] + made[end:]
                texts.append(made)
            return model.predict_proba(texts)

        count = len(spans)
        alone = shap.KernelExplainer(answers, np.zeros((1, count))).shap_values(np.ones((1, count)), l1_reg=0)
        np.testing.assert_allclose(array(tensors["values"])[row, :, :count], alone[0].T, atol=1e-9)
        assert not array(tensors["values"])[row, :, count:].any()
        starts, ends = array(tensors["start"])[row], array(tensors["end"])[row]
        assert list(zip(starts, ends, strict=True))[:count] == spans


@pytest.mark.processes
async def test_a_word_that_is_left_out_changes_the_output_by_its_part(tmp_path: Path) -> None:
    folder, model = folder_of(tmp_path, "{features: words, method: occlusion, mask: '[MASK]', budget: 20}")
    got, tensors = await explained(folder, [b"bad plot!", b""], target=0)
    whole, covered = (
        model.predict_proba(["bad plot!"])[0, 0],
        model.predict_proba(["[MASK] plot!", "bad [MASK]!"])[:, 0],
    )
    np.testing.assert_allclose(array(tensors["values"]), [whole - covered, [0, 0]])
    np.testing.assert_allclose(array(tensors["base"])[0], model.predict_proba(["[MASK] [MASK]!"])[0, 0])
    assert (got.method, got.model_rows, array(tensors["target"]).tolist()) == ("occlusion", 3 + 1 + 2, [0, 0])


@pytest.mark.processes
async def test_texts_that_cannot_be_explained_are_refused_by_name(tmp_path: Path) -> None:
    folder, _ = folder_of(tmp_path, "{features: words, method: kernel, budget: 100}")
    for text, message in (
        (b"\xff", "The text of row 1 is not UTF-8"),
        (b"a " * 1025, "The text of row 1 has more than 1024 words, which are the most that are explained"),
        (b"a " * 60, "2 rows needs at least 124 rows of the model, and the budget is 100"),
    ):
        with pytest.raises(CallerError, match=message):
            await explained(folder, [b"", text])


class Lengths:
    """A model whose output is the length of each text, twice. It notes the most bytes of a call."""

    most = 0

    def infer(self, inference: Inference, deadline: float) -> asyncio.Future[list[Tensor]]:
        sent = inference.inputs[0]
        self.most = max(self.most, len(sent.data))
        lengths = np.array([[len(text)] * 2 for text in split_bytes(sent.data, sent.shape[0], "text")], np.float64)
        future = Timed()
        future.set_result([Tensor("y", "FP64", lengths.shape, lengths.tobytes())])
        return future


async def of_lengths(model: Lengths, texts: list[bytes]) -> Attributions:
    """An explanation of a model whose configuration leaves open how many numbers its output has."""
    output = TensorSpec("y", "FP64", (-1,))
    config = ModelConfig(
        "m", inputs=(TensorSpec("text", "BYTES", (1,)),), outputs=(output,), max_batch_size=8,
        explain=ExplainRules(features="words", method="occlusion"),
    )  # fmt: skip
    sent = Tensor("text", "BYTES", (len(texts), 1), join_bytes(texts))
    deadline = asyncio.get_running_loop().time() + 300
    return await SampledExplainer(config, output, model, {}).explain(Inference("m", inputs=[sent]), deadline)


async def test_long_texts_are_computed_in_small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_requests, "MAX_BYTES", 3000)
    got = await of_lengths(model := Lengths(), [b"a" * 500 + b" b" * 250])
    assert (got.model_rows, got.values[0, 0, :2].tolist()) == (1 + 1 + 251, [500, 1])
    assert 1000 < model.most < 3000


async def test_an_answer_of_words_has_a_bound_if_its_numbers_are_open(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [b"one two three", b"four"]
    monkeypatch.setattr(explanation, "MAX_VALUES", 2 * 2 * 3)
    assert (await of_lengths(Lengths(), texts)).values.shape == (2, 2, 3)
    monkeypatch.setattr(explanation, "MAX_VALUES", 2 * 2 * 3 - 1)
    with pytest.raises(CallerError, match=r"2 rows has 12 values.* and the most are 11") as caught:
        await of_lengths(Lengths(), texts)
    assert caught.value.device_ms == 250 * 6


@pytest.mark.processes
async def test_a_model_without_a_text_has_no_words(tmp_path: Path) -> None:
    folder = pickled(tmp_path, LogisticRegression().fit(X, X[:, 0] > 0), "{features: words}")
    with pytest.raises(ModelLoadError, match="`features: words` needs one input of BYTES, with one text for each row"):
        await loaded.load(folder)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("  ", []),
        ("It's (very) good...", ["It's", "very", "good"]),
        ("— :-) €5", ["—", ":-)", "5"]),
        ("我爱猫 and ねこ", ["我", "爱", "猫", "and", "ね", "こ"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("e-mail\n\tto: a@b.c", ["e-mail", "to", "a@b.c"]),
    ],
)
def test_spaces_and_punctuation_divide_words(text: str, expected: list[str]) -> None:
    assert [word.text for word in words(text)] == expected


@given(st.text(st.sampled_from("ab é我.!'\n \t-😀"), max_size=30), st.data())
def test_a_text_is_that_of_its_present_words(text: str, data: st.DataObject) -> None:
    entries = words(text)
    assert all(text[word.start : word.end] == word.text != "" for word in entries)
    mixer = WordMixer("text", text, entries, "_")
    present = data.draw(st.lists(st.booleans(), min_size=len(entries), max_size=len(entries)))
    masks = np.array([present, [True] * len(entries)], bool).reshape(2, -1)
    rows = {"text": np.array([[text.encode()]], object), "n": np.ones((1, 2))}
    mixed = mixer.mixed(rows, np.zeros(2, np.int64), masks, 0, 2)
    expected = list(text)
    for word, is_present in zip(entries, present, strict=True):
        if not is_present:
            expected[word.start : word.end] = ["_", *[""] * (word.end - word.start - 1)]
    assert mixed["text"].ravel().tolist() == ["".join(expected).encode(), text.encode()]
    assert mixed["n"].shape == (2, 2)
