"""Folders of models that see: the layouts that are published, and contradictions, which are named."""

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from adapters.errors import CallerError
from runtimes.llm.api.pictures import PictureReader
from runtimes.llm.model.model_config import UnsupportedModel
from runtimes.llm.service import load
from runtimes.llm.text.tokenizer_loader import load_tokenizer
from runtimes.llm.vision.prompts import PicturePrompts
from runtimes.llm.vision.settings import vision_settings
from runtimes.llm.vision.tiles import TileSettings, tiled
from runtimes.llm.vision.tower import VisionTower, load_tower
from runtimes.llm.weights.quantized_writer import write_quantized
from tests.runtimes.llm.server_fixtures import options_of
from tests.support.seeing_models import encoded, picture, write_seeing_model


def change(file: Path, edit: Callable[[Any], object]) -> None:
    content = json.loads(file.read_text())
    edit(content)
    file.write_text(json.dumps(content))


def tower_in(folder: Path) -> VisionTower:
    own = vision_settings(folder)
    assert own is not None
    return load_tower(folder, own, "float32", "cpu")


def test_older_folders_have_a_file_for_each_part(tmp_path: Path) -> None:
    write_seeing_model(tmp_path)
    newer = vision_settings(tmp_path)
    template = load_tokenizer(tmp_path).chat_template
    processor = json.loads((tmp_path / "processor_config.json").read_text())
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(processor.pop("image_processor")))
    (tmp_path / "processor_config.json").write_text(json.dumps(processor))
    (tmp_path / "chat_template.jinja").unlink()
    (tmp_path / "chat_template.json").write_text(json.dumps({"chat_template": template}))
    assert vision_settings(tmp_path) == newer
    assert load_tokenizer(tmp_path).chat_template == template


def test_a_quantized_encoder_is_read_in_full(tmp_path: Path) -> None:
    folder = write_seeing_model(tmp_path / "whole").folder
    write_quantized(folder, tmp_path / "codes", 8, 16)
    tile = encoded_tile(tower_in(folder))
    whole, codes = (tower_in(tmp_path / name).rows(tile) for name in ("whole", "codes"))
    assert not torch.equal(whole, codes)
    torch.testing.assert_close(codes, whole, atol=0.5, rtol=0.1)


def encoded_tile(tower: VisionTower) -> bytes:
    return tiled(encoded(picture(100, 60)), tower.settings.tiles, "image").pixels[0]


PROCESSOR: list[tuple[str, Callable[[Any], object], str]] = [
    ("no rescaling", lambda it: it["image_processor"].update(do_rescale=False), "do_rescale is False"),
    (
        "tile",
        lambda it: it["image_processor"].update(max_image_size={"longest_edge": 35}),
        "a tile of 35 pixels has 5 patches",
    ),
    ("no size", lambda it: it["image_processor"].update(size={"height": 3, "width": 3}), "longest_edge"),
    ("small", lambda it: it["image_processor"].update(size={"longest_edge": 20}), "of 20 pixels cannot be cut"),
    ("means", lambda it: it["image_processor"].update(image_mean=[0.5]), "need three numbers each"),
    ("zero", lambda it: it["image_processor"].update(image_std=[0, 1, 1]), "none of image_std may be 0"),
    ("filter", lambda it: it["image_processor"].update(resample=9), "resample 9"),
    ("rows", lambda it: it.update(image_seq_len=64), "image_seq_len is 64; a tile of 28 pixels has 4"),
]
CONFIG: list[tuple[str, Callable[[Any], object], str]] = [
    ("patch", lambda it: it["vision_config"].update(patch_size=0), "must be 1 or more"),
    ("heads", lambda it: it["vision_config"].update(num_attention_heads=5), "cannot have 5 heads"),
    ("activation", lambda it: it["vision_config"].update(hidden_act="relu"), "'relu'"),
    ("channels", lambda it: it["vision_config"].update(num_channels=1), "num_channels is 1"),
    ("layers", lambda it: it["vision_config"].update(num_hidden_layers=3), r"layers\.2\.self_attn\.q_proj\.weight"),
    ("inner", lambda it: it["vision_config"].update(intermediate_size=64), r"fc1\.weight is \[48, 32\]"),
    ("token", lambda it: it.update(image_token_id=7), "image_token_id is 7; the tokenizer has"),
    ("family", lambda it: it.update(model_type="qwen2_vl"), "pictures of qwen2_vl are not supported"),
]


@pytest.mark.parametrize(
    ("file", "edit", "message"),
    [("processor_config.json", *row[1:]) for row in PROCESSOR] + [("config.json", *row[1:]) for row in CONFIG],
    ids=[row[0] for row in PROCESSOR + CONFIG],
)
def test_a_contradiction_is_named(tmp_path: Path, file: str, edit: Callable[[Any], object], message: str) -> None:
    folder = write_seeing_model(tmp_path).folder
    change(folder / file, edit)
    with pytest.raises(UnsupportedModel, match=message):
        PicturePrompts(tower_in(folder).settings, load_tokenizer(folder))


def test_without_its_encoder_a_model_reads_texts_alone(tmp_path: Path) -> None:
    folder = write_seeing_model(tmp_path).folder
    file = folder / "model.safetensors"
    save_file({name: one for name, one in load_file(file).items() if "connector" not in name}, file)
    model = load(options_of(folder))
    assert isinstance(model.pictures, str)
    assert "model.connector.modality_projection.proj.weight is not in" in model.pictures
    assert model.grammars is not None
    model.grammars.close()


def test_a_model_of_text_has_no_reader(tmp_path: Path) -> None:
    folder = write_seeing_model(tmp_path).folder
    model = load(options_of(folder))
    assert isinstance(model.pictures, PictureReader)
    assert model.grammars is not None
    model.grammars.close()
    change(folder / "config.json", lambda it: it.update(it["text_config"]))
    assert vision_settings(folder) is None


TILES = TileSettings(tile=16, longest=32, splits=True, resample=1)
KINDS = {kind: encoded(picture(20, 15), kind) for kind in ("PNG", "JPEG", "WEBP", "GIF")}


@given(st.sampled_from(sorted(KINDS)), st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), max_size=8))
@settings(max_examples=300, deadline=None)
def test_a_damaged_file_is_a_picture_or_the_callers_error(kind: str, damage: list[tuple[int, int]]) -> None:
    file = bytearray(KINDS[kind])
    for place, value in damage:
        file[place % len(file)] = value
    with suppress(CallerError):
        picture = tiled(bytes(file), TILES, "image")
        assert len(picture.pixels) == len(picture.digests) == picture.rows * picture.columns + 1
        assert {len(tile) for tile in picture.pixels} == {16 * 16 * 3}
