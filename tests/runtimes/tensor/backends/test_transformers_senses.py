"""Pipelines of pictures and of speech with random weights: the answers of `transformers` itself."""

import io
import json
import wave
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from adapters.wire.media.sound import resample
from runtimes.tensor.huggingface.model import ALIKE, PADDED, PipelineModel
from runtimes.tensor.interfaces import Array, InvalidRow, ModelLoadError
from tests.support.hugging_face import change, save_vit, save_wav2vec2, save_whisper, save_yolos
from tests.support.pipeline_models import assert_alike, assert_json_alike, load, outputs, refused, texts

RANDOM = np.random.default_rng(11)
PICTURES = [Image.fromarray(RANDOM.integers(0, 256, (*size, 3), np.uint8)) for size in ((40, 60), (48, 48), (90, 33))]
SOUND = [(RANDOM.standard_normal(length) / 8).astype(np.float32) for length in (8000, 8000, 12345)]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pipelines")


@cache
def made(root: Path, kind: str) -> tuple[Path, PipelineModel]:
    save = {"vit": save_vit, "yolos": save_yolos, "wav2vec2": save_wav2vec2}[kind]
    labels = {} if kind == "wav2vec2" else {"num_labels": 7}
    folder = save(root / kind, **labels)
    return folder, load(folder)[1]


def png(picture: Image.Image, kind: str = "PNG") -> bytes:
    file = io.BytesIO()
    picture.save(file, kind)
    return file.getvalue()


def wav(samples: Array, rate: int = 16_000) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(1)
        writer.setsampwidth(2)
        writer.setframerate(rate)
        writer.writeframes((samples * 32767).astype("<i2").tobytes())
    return file.getvalue()


def test_pictures_are_classified_as_the_pipeline_does(root: Path) -> None:
    folder, model = made(root, "vit")
    assert model.sharing == PADDED
    got = outputs(model, args=texts(*map(png, PICTURES)))
    pipe = transformers.pipeline("image-classification", model=str(folder))
    for at, picture in enumerate(PICTURES):
        best = pipe(picture)
        assert_json_alike(json.loads(got["output"][at]), best)
        assert got["label"][at] == best[0]["label"].encode()
        scores = {one["label"]: one["score"] for one in pipe(picture, top_k=7)}
        np.testing.assert_allclose(got["scores"][at], [scores[f"LABEL_{number}"] for number in range(7)], atol=1e-5)
    assert_alike(model, [{"args": texts(png(picture))} for picture in PICTURES])
    for picture in PICTURES:
        from_pixels = outputs(model, pixels=np.asarray(picture)[None])
        np.testing.assert_array_equal(from_pixels["scores"][0], outputs(model, args=texts(png(picture)))["scores"][0])


@pytest.mark.parametrize("side", [1, 2])
def test_a_line_of_pixels_is_refused_before_it_is_enlarged(side: int, root: Path) -> None:
    _, model = made(root, "vit")
    line = np.zeros((side, 101 * side, 3), np.uint8)
    for pixels in (line, np.ascontiguousarray(line.transpose(1, 0, 2))):
        for inputs in ({"args": texts(png(Image.fromarray(pixels)))}, {"pixels": pixels[None]}):
            assert "at most 100 times as long as wide" in refused(model, **inputs)[0]
    outputs(model, pixels=line[None, :, : 100 * side])


def test_objects_are_detected_as_the_pipeline_does(root: Path) -> None:
    folder, _ = made(root, "yolos")
    _, model = load(folder, threshold="0.2")
    assert model.sharing == ALIKE
    got = outputs(model, args=texts(*map(png, PICTURES)))
    pipe = transformers.pipeline("object-detection", model=str(folder), threshold=0.2)
    assert got["count"].sum() > 0
    for at, picture in enumerate(PICTURES):
        objects = pipe(picture)
        count = got["count"][at]
        assert count == len(objects)
        assert got["labels"][at][:count].tolist() == [one["label"].encode() for one in objects]
        np.testing.assert_allclose(got["scores"][at][:count], [one["score"] for one in objects], atol=1e-5)
        sides = ("xmin", "ymin", "xmax", "ymax")
        assert got["boxes"][at][:count].tolist() == [[one["box"][side] for side in sides] for one in objects]
    assert_alike(model, [{"args": texts(png(picture))} for picture in (*PICTURES, PICTURES[0])])


def test_pictures_that_cannot_be_read_are_refused_alone(root: Path) -> None:
    _, model = made(root, "vit")
    bomb = png(Image.new("1", (6000, 6000)))
    rows = texts(png(PICTURES[0]), b"no picture", png(PICTURES[0])[:200], bomb)
    errors = refused(model, args=rows)
    assert errors == {
        1: "`args` is not a JPEG, PNG, WebP or GIF picture.",
        2: "`args` is truncated or damaged.",
        3: "`args` has more than 24000000 pixels.",
    }
    both = refused(model, args=texts(png(PICTURES[0])), pixels=np.zeros((1, 4, 4, 3), np.uint8))
    assert both == {0: "send either `args`, which are files, or `pixels`."}
    assert refused(model, pixels=np.zeros((1, 0, 4, 3), np.uint8)).keys() == {0}


@given(content=st.binary(max_size=80), at=st.integers(0, 400))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.parametrize("kind", ["vit", "wav2vec2"])
def test_any_bytes_are_read_or_refused_alone(kind: str, root: Path, content: bytes, at: int) -> None:
    _, model = made(root, kind)
    file = png(PICTURES[1]) if kind == "vit" else wav(SOUND[0])
    changed = file[:at] + content + file[at + len(content) :]
    answer = model.infer({"args": texts(file, changed, content)})
    values, errors = answer if isinstance(answer, tuple) else (answer, {})
    assert 0 not in errors
    assert all(isinstance(one, InvalidRow) for one in errors.values())
    assert len(values["output"]) == 3


@pytest.mark.parametrize("save", [save_vit, save_wav2vec2])
def test_a_processor_of_the_folder_is_refused(save: Any, tmp_path: Path) -> None:
    own = {"auto_map": {"AutoImageProcessor": "code.Own", "AutoFeatureExtractor": "code.Own"}}
    kinds = {"image_processor_type": "Own", "feature_extractor_type": "Own"}
    change(save(tmp_path / "m") / "preprocessor_config.json", **own, **kinds)
    with pytest.raises(ModelLoadError, match="needs Own, which is code of the folder and never run here"):
        load(tmp_path / "m")


def test_speech_is_recognised_as_the_pipeline_does(root: Path) -> None:
    folder, model = made(root, "wav2vec2")
    pipe = transformers.pipeline("automatic-speech-recognition", model=str(folder))
    got = outputs(model, args=texts(*map(wav, SOUND)))
    for at, samples in enumerate(SOUND):
        rounded = np.frombuffer(wav(samples)[44:], "<i2").astype(np.float32) / 32768
        expected = pipe(rounded.copy())
        assert expected["text"]
        assert got["text"][at] == expected["text"].encode()
        assert json.loads(got["output"][at]) == expected
    assert_alike(model, [{"args": texts(wav(samples))} for samples in SOUND])


def test_samples_are_converted_from_their_rate(root: Path) -> None:
    folder, model = made(root, "wav2vec2")
    pipe = transformers.pipeline("automatic-speech-recognition", model=str(folder))
    assert outputs(model, samples=SOUND[0][None])["text"][0] == pipe(SOUND[0].copy())["text"].encode()
    slow = np.array([8000], np.int32)
    expected = pipe(resample(SOUND[0][None], 8000, 16_000)[0])["text"].encode()
    assert outputs(model, samples=SOUND[0][None], rate=slow)["text"][0] == expected


def test_long_sound_is_cut_into_parts_on_demand(root: Path) -> None:
    folder, _ = made(root, "wav2vec2")
    _, model = load(folder, chunk_length="0.3")
    pipe = transformers.pipeline("automatic-speech-recognition", model=str(folder), chunk_length_s=0.3)
    assert outputs(model, samples=SOUND[2][None])["text"][0] == pipe(SOUND[2].copy())["text"].encode()


@pytest.mark.parametrize(
    ("inputs", "reason"),
    [
        ({"samples": np.zeros((1, 100), np.float32)}, "the sound has 0.006 s, and 0.025 s is the least"),
        ({"samples": np.full((1, 9000), np.nan, np.float32)}, "`samples` has numbers that are not finite"),
        ({"samples": SOUND[0][None], "rate": np.array([5], np.int32)}, "`rate` is 5, and not between"),
        ({"samples": np.zeros((1, 9_000_000), np.float32), "rate": np.array([1000], np.int32)}, "has more than"),
        ({"args": texts(wav(SOUND[0])), "rate": np.array([16000], np.int32)}, "`rate` is for `samples`"),
        ({"args": texts(wav(SOUND[0])), "samples": SOUND[0][None]}, "send either `args`"),
        ({"args": texts(b"RIFF....WAVE")}, "`args` is a WAV file without a format"),
    ],
)
def test_sound_that_cannot_be_read_is_refused(inputs: dict[str, Any], reason: str, root: Path) -> None:
    _, model = made(root, "wav2vec2")
    (error,) = refused(model, **inputs).values()
    assert reason in error


def test_whisper_writes_as_the_pipeline_does(root: Path) -> None:
    folder = save_whisper(root / "whisper")
    _, model = load(folder)
    assert model.sharing == PADDED
    pipe = transformers.pipeline("automatic-speech-recognition", model=str(folder))
    tone = np.sin(np.arange(8000) / 9).astype(np.float32)
    rows = np.stack([SOUND[0], tone, np.where(np.arange(8000) < 4000, 0, tone * 0.1).astype(np.float32)])
    expected = [pipe(samples.copy())["text"].encode() for samples in rows]
    assert len(set(expected)) > 1
    assert outputs(model, samples=rows)["text"].tolist() == expected
    long = np.tile(SOUND[0], 61)[None]
    assert refused(model, samples=long) == {0: "the sound has 30.5 s, and the model hears 30 s: send parts of it."}
    _, cutting = load(folder, chunk_length="20")
    parts = transformers.pipeline("automatic-speech-recognition", model=str(folder), chunk_length_s=20)
    assert outputs(cutting, samples=long)["text"][0] == parts(long[0].copy())["text"].encode()
