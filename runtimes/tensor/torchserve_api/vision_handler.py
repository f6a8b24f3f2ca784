"""`ts.torch_handler.vision_handler`: requests with pictures, as TorchServe and torchvision prepare them, by Pillow.

The functions are torchvision's `Resize(256)`, `CenterCrop(224)`, `ToTensor` and `Normalize` of pictures of Pillow.
"""

from __future__ import annotations

import base64
import binascii
import io
from typing import Any, Final

import numpy as np
import torch
from PIL import Image

from runtimes.tensor.torchserve_api.base_handler import BaseHandler
from runtimes.tensor.torchserve_api.utilities import PredictionException

SHORT_SIDE: Final = 256
CROP: Final = 224
MEAN: Final = (0.485, 0.456, 0.406)
DEVIATION: Final = (0.229, 0.224, 0.225)
"""Of the pictures of ImageNet, by channel."""
FORMATS: Final = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
"""Pillow reads more, some of them by programs of this machine, as EPS by Ghostscript."""
MAX_RATIO: Final = 100
"""The longest shape. A line of pixels, whose shorter side grows to 256, would take gigabytes."""


def to_tensor(picture: Any) -> torch.Tensor:
    """Channels, rows, columns, from 0 to 1."""
    array = np.array(picture, dtype=np.uint8)
    return torch.from_numpy(array).permute(2, 0, 1).contiguous().to(torch.float32).div(255)


def classification_input(picture: Any) -> torch.Tensor:
    """The middle of a picture whose shorter side has 256 pixels, of ImageNet's mean and deviation.

    Raises `PredictionException` for a picture that is too long.
    """
    width, height = picture.size
    short, long = min(width, height), max(width, height)
    if long > MAX_RATIO * short:
        raise PredictionException(
            f"The request's picture has {width} × {height} pixels, which is too long a shape.", 400
        )
    longer = int(SHORT_SIDE * long / short)
    size = (SHORT_SIDE, longer) if width <= height else (longer, SHORT_SIDE)
    picture = picture if size == picture.size else picture.resize(size, Image.Resampling.BILINEAR)
    left, top = (round((side - CROP) / 2.0) for side in size)
    tensor = to_tensor(picture.crop((left, top, left + CROP, top + CROP)))
    mean, deviation = (torch.tensor(one).view(-1, 1, 1) for one in (MEAN, DEVIATION))
    return tensor.sub_(mean).div_(deviation)


class VisionHandler(BaseHandler):
    """Handlers set `image_processing`, which makes the tensor of a picture."""

    image_processing: Any = staticmethod(classification_input)

    def preprocess(self, data: Any) -> Any:
        """A batch of the tensors of all requests: pictures, texts in base64, or numbers."""
        return torch.stack([self._tensor(row.get("data") or row.get("body")) for row in data]).to(self.device)

    def _tensor(self, value: Any) -> Any:
        """Raises `PredictionException` for a request that is no picture, which is then the client's mistake."""
        try:
            if isinstance(value, str):
                value = base64.b64decode(value)
            if isinstance(value, list):
                return torch.FloatTensor(value)
            if not isinstance(value, bytes | bytearray):  # FloatTensor(n) is n numbers of free memory
                raise TypeError
            picture = Image.open(io.BytesIO(value), formats=FORMATS)
            picture.load()
        except (OSError, SyntaxError, ValueError, TypeError, binascii.Error, Image.DecompressionBombError) as error:
            raise PredictionException(
                f"The request has no picture that can be read: {type(error).__name__}.", 400
            ) from None
        return self.image_processing(picture if picture.mode == "RGB" else picture.convert("RGB"))
