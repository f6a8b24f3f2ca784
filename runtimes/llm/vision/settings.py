"""How a model reads pictures, from config.json, preprocessor_config.json and processor_config.json.

Idefics 3 (Laurençon et al. 2024, https://arxiv.org/abs/2408.12637) and SmolVLM: a picture is enlarged to a multiple of
the encoder's square, cut into such tiles, and added once more as a whole.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runtimes.llm.model.hugging_face import OTHER_PARTS
from runtimes.llm.model.model_config import UnsupportedModel
from runtimes.llm.vision.tiles import TileSettings
from runtimes.llm.weights.tensor_files import json_object

SEEING = ("idefics3", "smolvlm")
"""The types of config.json whose pictures are read."""
MOST = 4096
"""Pixels of the longest side, as in transformers."""
_ENCODER = {
    "hidden_size": 1152, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 16,
    "image_size": 224, "patch_size": 32, "hidden_act": "gelu_pytorch_tanh", "layer_norm_eps": 1e-6, "num_channels": 3,
}  # fmt: skip
_ALWAYS = ("do_resize", "do_rescale", "do_normalize", "do_convert_rgb")
_LANCZOS = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class VisionSettings:
    """The tiles of a model, how their pixels become numbers, and the shape of the encoder."""

    tiles: TileSettings
    scale: float
    """The factor of a pixel's 0 to 255."""
    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    image_token: int
    """The token that stands for each row of a picture."""
    hidden: int
    inner: int
    layers: int
    heads: int
    image_size: int
    """The side of the pictures that the encoder's positions are made for."""
    patch: int
    activation: str
    eps: float
    shuffle: int
    """Neighbouring patches on a side that become one row."""
    text_hidden: int

    @property
    def patches(self) -> int:
        """Patches on the side of a tile. Pixels behind the last whole one are not read."""
        return self.tiles.tile // self.patch

    @property
    def rows(self) -> int:
        """Rows of a tile, each in the place of a token."""
        return (self.patches // self.shuffle) ** 2

    @property
    def numbers(self) -> int:
        """Numbers of the encoder's matrices."""
        layer = 4 * self.hidden**2 + 2 * self.hidden * self.inner
        places, row = (self.image_size // self.patch) ** 2, self.hidden * self.shuffle**2
        return self.layers * layer + self.hidden * (3 * self.patch**2 + places) + row * self.text_hidden


def vision_settings(folder: Path) -> VisionSettings | None:
    """None for a model without pictures. Raises UnsupportedModel for one whose pictures cannot be read."""
    if (
        not folder.is_dir()
        or (kind := (raw := json_object(folder / "config.json")).get("model_type")) not in OTHER_PARTS
    ):
        return None
    if kind not in SEEING:
        raise UnsupportedModel(f"the pictures of {kind} are not supported; those of {' and '.join(SEEING)} are")
    try:
        settings = _settings(raw, *_processor(folder))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, UnsupportedModel):
            raise
        raise UnsupportedModel(f"the settings of pictures in {folder.name} are not valid: {error!r}") from None
    _check(settings)
    return settings


def _processor(folder: Path) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The settings of pictures, and those of the prompt. Newer folders have both in one file."""
    path = folder / "processor_config.json"
    whole = json_object(path) if path.exists() else {}
    if isinstance(nested := whole.get("image_processor"), dict):
        return nested, whole
    return json_object(folder / "preprocessor_config.json"), whole


def _settings(raw: Mapping[str, Any], pictures: Mapping[str, Any], prompt: Mapping[str, Any]) -> VisionSettings:
    encoder = {**_ENCODER, **(raw.get("vision_config") or {})}
    for name in _ALWAYS:
        if pictures.get(name, True) is not True:
            raise UnsupportedModel(f"{name} is {pictures[name]}: pictures of such a model are not read")
    if encoder["num_channels"] != 3:
        raise UnsupportedModel(f"num_channels is {encoder['num_channels']}, not 3")
    size, cut = pictures.get("size", {"longest_edge": 1456}), pictures.get("max_image_size", {"longest_edge": 364})
    settings = VisionSettings(
        tiles=TileSettings(
            tile=int(cut["longest_edge"]),
            longest=min(int(size["longest_edge"]), MOST),
            splits=bool(pictures.get("do_image_splitting", True)),
            resample=int(pictures.get("resample", _LANCZOS)),
        ),
        scale=float(pictures.get("rescale_factor", 1 / 255)),
        mean=tuple(map(float, pictures.get("image_mean", (0.5,) * 3))),
        deviation=tuple(map(float, pictures.get("image_std", (0.5,) * 3))),
        image_token=int(raw.get("image_token_id", 128257)),
        hidden=int(encoder["hidden_size"]),
        inner=int(encoder["intermediate_size"]),
        layers=int(encoder["num_hidden_layers"]),
        heads=int(encoder["num_attention_heads"]),
        image_size=int(encoder["image_size"]),
        patch=int(encoder["patch_size"]),
        activation=str(encoder["hidden_act"]),
        eps=float(encoder["layer_norm_eps"]),
        shuffle=int(raw.get("scale_factor", 2)),
        text_hidden=int(raw["text_config"]["hidden_size"]),
    )
    _check_prompt(settings, prompt)
    return settings


def _check_prompt(settings: VisionSettings, prompt: Mapping[str, Any]) -> None:
    if min(settings.patch, settings.shuffle) < 1:
        raise UnsupportedModel("patch_size and scale_factor must be 1 or more")
    declared = prompt.get("image_seq_len")
    if declared is not None and declared != settings.rows:
        raise UnsupportedModel(
            f"image_seq_len is {declared}; a tile of {settings.tiles.tile} pixels has {settings.rows}"
        )


def _check(settings: VisionSettings) -> None:
    tiles = settings.tiles
    if not 1 <= tiles.tile <= tiles.longest or tiles.most_tiles > 257:
        raise UnsupportedModel(f"pictures of {tiles.longest} pixels cannot be cut into tiles of {tiles.tile}")
    if not settings.patches or settings.patches % settings.shuffle:
        raise UnsupportedModel(
            f"a tile of {tiles.tile} pixels has {settings.patches} patches on a side, which {settings.shuffle} a row"
            " do not divide"
        )
    if settings.heads < 1 or settings.hidden % settings.heads or settings.image_size < settings.patch:
        raise UnsupportedModel(f"an encoder of {settings.hidden} numbers cannot have {settings.heads} heads")
    if len(settings.mean) != 3 or len(settings.deviation) != 3 or 0 in settings.deviation:
        raise UnsupportedModel("image_mean and image_std need three numbers each, and none of image_std may be 0")
    if settings.activation not in ("gelu_pytorch_tanh", "gelu") or not 0 <= tiles.resample <= 5:
        raise UnsupportedModel(f"pictures with {settings.activation!r} and resample {tiles.resample} are not read")
