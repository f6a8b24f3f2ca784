"""The node `decode`: pictures and sound as tensors."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field as Bounds
from pydantic import model_validator

from config.schema.pipelines.leaf import LeafConfig
from config.schema.section import Section

Side = Annotated[int, Bounds(ge=1, le=16_384)]
Colour = Annotated[int, Bounds(ge=0, le=255)]
Deviation = Annotated[float, Bounds(gt=0)]


class ImageConfig(Section):
    """The tensor that a model of pictures expects: ``[pictures, channels, height, width]`` by ``layout: chw``."""

    height: Side | None = None
    """Pixels; the picture's own when absent, or in proportion to ``width``."""
    width: Side | None = None
    """Pixels; the picture's own when absent, or in proportion to ``height``."""
    fit: Literal["stretch", "crop", "pad"] = "stretch"
    """With ``height`` and ``width``: change the proportions, cut the longer side, or fill with ``background``."""
    longest: Side | None = None
    """Pixels to which the longer side is reduced, with its proportions."""
    multiple_of: int = Bounds(1, ge=1, le=1024)
    """Sides are rounded to a multiple, for models that halve them repeatedly."""
    resample: Literal["nearest", "bilinear", "bicubic", "lanczos"] = "bilinear"
    """Filter for another size."""
    color: Literal["rgb", "bgr", "gray"] = "rgb"
    """Channels."""
    layout: Literal["chw", "hwc"] = "chw"
    """Order of the dimensions after the first: channels, height, width, or channels last."""
    datatype: Literal["UINT8", "FP16", "FP32"] = "FP32"
    """Datatype. UINT8 has the values 0 to 255 as they are."""
    scale: float = 1.0
    """Factor of each value of 0 to 255, such as 0.00392157 for 1/255. ``mean`` and ``deviation`` apply after it."""
    mean: tuple[float, ...] = Bounds((0.0,), min_length=1, max_length=3)
    """Subtracted from each value: one number, or one for each channel."""
    deviation: tuple[Deviation, ...] = Bounds((1.0,), min_length=1, max_length=3)
    """Divisor of each value after that: one number, or one for each channel."""
    background: tuple[Colour, Colour, Colour] = (255, 255, 255)
    """Colour in RGB behind transparent pixels and beside padded pictures."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        channels = 1 if self.color == "gray" else 3
        for name in ("mean", "deviation"):
            if len(getattr(self, name)) not in (1, channels):
                raise ValueError(f"`{name}` has 1 number{', or 3' if channels == 3 else ' for a gray picture'}")
        given = self.model_fields_set
        if self.datatype == "UINT8" and (wrong := given & {"scale", "mean", "deviation"}):
            raise ValueError(f"`{min(wrong)}` has no effect on UINT8: use FP32 or FP16")
        if "fit" in given and (self.height is None or self.width is None):
            raise ValueError("`fit` needs `height` and `width`")
        if self.height is not None and self.width is not None and (wrong := given & {"longest", "multiple_of"}):
            raise ValueError(f"`{min(wrong)}` has no effect with `height` and `width`")
        return self


class SoundConfig(Section):
    """The tensor that a model of sound expects: ``[1, samples]``, or ``[1, channels, samples]``."""

    rate: int | None = Bounds(None, ge=1_000, le=384_000)
    """Samples a second; the file's own when absent."""
    mono: bool = True
    """Whether the channels are reduced to their mean."""
    datatype: Literal["INT16", "FP32"] = "FP32"
    """FP32 has values from -1 to 1."""


class DecodeConfig(LeafConfig):
    """Decodes files of the request. Each input of the step becomes an output with its name."""

    image: ImageConfig | None = None
    """The files are JPEG, PNG or WebP pictures. A list of pictures becomes one tensor."""
    sound: SoundConfig | None = None
    """The file is a WAV file."""

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if (self.image is None) == (self.sound is None):
            raise ValueError("give either `image` or `sound`; `image: {}` has all defaults")
        return self

    def needs_inputs(self) -> bool:
        return True
