"""A picture's tiles, their numbers and their tokens are those of transformers, bit for bit."""

import io
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from transformers.image_utils import load_image
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil

from adapters.errors import CallerError, TooLarge
from adapters.wire.media.images import decode_rgb
from runtimes.llm.text.tokenizer_loader import load_tokenizer
from runtimes.llm.vision.prompts import PicturePrompts
from runtimes.llm.vision.settings import VisionSettings, vision_settings
from runtimes.llm.vision.tiles import TileSettings, tiled
from runtimes.llm.vision.tower import VisionTower, load_tower
from tests.support.seeing_models import SeeingModel, encoded, picture, write_seeing_model

SIZES = [(100, 60), (28, 28), (5, 300), (300, 5), (84, 84), (60, 100), (1, 1)]


def settings_of(model: SeeingModel) -> VisionSettings:
    own = vision_settings(model.folder)
    assert own is not None
    return own


def tower_of(model: SeeingModel) -> VisionTower:
    return load_tower(model.folder, settings_of(model), "float32", "cpu")


@pytest.mark.parametrize(
    ("family", "how"),
    [
        ("idefics3", {}),
        ("idefics3", {"splits": False}),
        ("smolvlm", {"splits": False}),
        ("smolvlm", {"tile": 33}),  # of 4 patches and some pixels, as SmolVLM 2.2B has them
    ],
)
def test_tiles_tokens_and_rows_are_those_of_transformers(tmp_path: Path, family: str, how: dict[str, Any]) -> None:
    model = write_seeing_model(tmp_path, family, **how)
    tower, tokenizer = tower_of(model), load_tokenizer(tmp_path)
    prompts = PicturePrompts(tower.settings, tokenizer)
    for size in SIZES:
        image = picture(*size)
        ours = tiled(encoded(image), tower.settings.tiles, "image")
        expected = model.processor(images=[image], text=["hi <image> you"], return_tensors="pt")
        prompt = prompts.expanded(tokenizer.encode("hi <image> you", allow_special=True), [ours])
        assert prompt.token_ids == expected["input_ids"][0].tolist()
        assert len(prompt.places) == len(ours.pixels)
        pixels = torch.stack([tower.normalised(tile) for tile in ours.pixels])
        assert torch.equal(pixels, expected["pixel_values"][0])
        with torch.inference_mode():
            [rows] = model.model.model.get_image_features(expected["pixel_values"]).pooler_output
        torch.testing.assert_close(torch.cat([tower.rows(tile) for tile in ours.pixels]), rows, atol=2e-5, rtol=0)


def test_patches_of_another_size_than_the_encoders_have_its_places(tmp_path: Path) -> None:
    model = write_seeing_model(tmp_path)
    whole = settings_of(model)
    smaller = TileSettings(tile=14, longest=28, splits=True, resample=1)
    tower = VisionTower(_with_tiles(whole, smaller), tower_of(model)._tensor)
    processor = Idefics3ImageProcessorPil(max_image_size={"longest_edge": 14}, size={"longest_edge": 28})
    expected = processor(images=[picture(40, 30)], return_tensors="pt")
    ours = tiled(encoded(picture(40, 30)), smaller, "image")
    with torch.inference_mode():
        [rows] = model.model.model.get_image_features(expected["pixel_values"]).pooler_output
    torch.testing.assert_close(torch.cat([tower.rows(tile) for tile in ours.pixels]), rows, atol=2e-5, rtol=0)


def _with_tiles(given: VisionSettings, tiles: TileSettings) -> VisionSettings:
    fields: dict[str, Any] = {name: getattr(given, name) for name in VisionSettings.__slots__}
    return VisionSettings(**fields | {"tiles": tiles})


@given(st.integers(1, 400), st.integers(1, 400), st.sampled_from([(16, 48), (14, 50), (28, 28), (20, 101)]))
@settings(max_examples=60, deadline=None)
def test_any_size_is_cut_as_transformers_cuts_it(width: int, height: int, sides: tuple[int, int]) -> None:
    image, (tile, longest) = picture(width, height), sides
    processor = Idefics3ImageProcessorPil(max_image_size={"longest_edge": tile}, size={"longest_edge": longest})
    expected = processor(images=[image], return_row_col_info=True, return_tensors="pt")
    ours = tiled(encoded(image), TileSettings(tile=tile, longest=longest, splits=True, resample=1), "image")
    assert [[ours.rows]] == expected["rows"]
    assert [[ours.columns]] == expected["cols"]
    raw = (expected["pixel_values"][0] * 127.5 + 127.5).round().to(torch.uint8).permute(0, 2, 3, 1)
    assert [bytes(tile.contiguous().numpy()) for tile in raw] == ours.pixels


@pytest.mark.parametrize(
    ("kind", "mode"),
    [("PNG", "RGB"), ("PNG", "RGBA"), ("PNG", "LA"), ("PNG", "L"), ("PNG", "1"), ("PNG", "P"), ("PNG", "I;16"),
     ("JPEG", "CMYK"), ("JPEG", "L"), ("WEBP", "RGBA"), ("GIF", "P")],
)  # fmt: skip
@pytest.mark.parametrize("turned", [1, 3, 6, 8])
def test_a_file_is_read_as_load_image_reads_it(kind: str, mode: str, turned: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = turned
    source = picture(9, 5, mode=mode if mode in ("RGBA", "LA", "L", "CMYK", "I;16") else "RGB")
    options: dict[str, Any] = {} if kind == "GIF" else {"exif": exif}
    file = encoded(source.convert(mode) if source.mode != mode else source, kind, **options)
    assert decode_rgb(file, "image").tobytes() == load_image(b64encode(file).decode()).tobytes()


def test_of_an_animated_gif_the_first_frame_counts() -> None:
    frames = [picture(6, 6, seed).quantize() for seed in range(3)]
    file = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert decode_rgb(file, "image").tobytes() == Image.open(io.BytesIO(file)).convert("RGB").tobytes()


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF"])
def test_a_file_that_is_cut_is_refused(kind: str) -> None:
    file = encoded(picture(90, 90), kind)
    for end in (len(file) // 2, 12):
        with pytest.raises(CallerError, match=r"`messages\[0\]` is (truncated or damaged|not a JPEG)"):
            decode_rgb(file[:end], "messages[0]")


def test_a_file_that_declares_too_many_pixels_is_not_decoded() -> None:
    file = bytearray(encoded(picture(6, 6).quantize(), "GIF"))
    file[6:10] = b"\xff\xff\xff\xff"  # the screen of a GIF
    with pytest.raises(TooLarge, match="more than"):
        decode_rgb(bytes(file), "image")
