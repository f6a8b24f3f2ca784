"""The tokens that stand for pictures in a prompt, as transformers' Idefics3Processor writes them.

A template writes one `<image>` for each picture. It becomes a row of tokens for each tile, between marks that tell the
tile's place. No message can write it: spellings of control tokens in messages are cut.
"""

from collections.abc import Sequence
from typing import NamedTuple

from adapters.errors import CallerError
from runtimes.llm.model.model_config import UnsupportedModel
from runtimes.llm.text.tokenizer import Tokenizer
from runtimes.llm.vision.settings import VisionSettings
from runtimes.llm.vision.tiles import TiledPicture

_IMAGE, _AROUND, _WHOLE = "<image>", "<fake_token_around_image>", "<global-img>"


class PicturePrompt(NamedTuple):
    """A prompt with pictures: `places` has the first token of each tile."""

    token_ids: list[int]
    places: list[int]


class PicturePrompts:
    """Writes pictures into prompts. Raises UnsupportedModel if the tokenizer lacks their tokens."""

    def __init__(self, settings: VisionSettings, tokenizer: Tokenizer) -> None:
        special = tokenizer.special_tokens
        if missing := [mark for mark in (_IMAGE, _AROUND) if mark not in special]:
            raise UnsupportedModel(f"the tokenizer has no control token {missing[0]}")
        if special[_IMAGE] != settings.image_token:
            raise UnsupportedModel(f"image_token_id is {settings.image_token}; the tokenizer has {special[_IMAGE]}")
        self._image = settings.image_token
        self._tokenizer = tokenizer
        self._rows = settings.rows
        self._by_grid: dict[tuple[int, int], list[int]] = {}

    def expanded(self, prompt: Sequence[int], pictures: Sequence[TiledPicture]) -> PicturePrompt:
        """The `prompt` with the tokens of each picture in place of its mark.

        Raises CallerError if the template has left a picture out.
        """
        marks = [at for at, token in enumerate(prompt) if token == self._image]
        if len(marks) != len(pictures):
            message = (
                f"The model's chat template takes {len(marks)} of the {len(pictures)} pictures: put each into a"
                " message of the user."
            )
            raise CallerError(message, param="messages")
        token_ids, end = list[int](), 0
        for at, picture in zip(marks, pictures, strict=True):
            token_ids += [*prompt[end:at], *self._tokens(picture)]
            end = at + 1
        token_ids += prompt[end:]
        images = [at for at, token in enumerate(token_ids) if token == self._image]
        return PicturePrompt(token_ids, images[:: self._rows])

    def _tokens(self, picture: TiledPicture) -> list[int]:
        grid = picture.rows, picture.columns
        if (tokens := self._by_grid.get(grid)) is None:
            tokens = self._by_grid[grid] = self._encoded(*grid)
        return tokens

    def _encoded(self, height: int, width: int) -> list[int]:
        images, rows, columns = _IMAGE * self._rows, range(1, height + 1), range(1, width + 1)
        lines = ["".join(f"{_AROUND}<row_{row}_col_{column}>{images}" for column in columns) + "\n" for row in rows]
        text = "".join(lines) + "\n" * bool(lines) + f"{_AROUND}{_WHOLE}{images}{_AROUND}"
        return self._tokenizer.encode(text, allow_special=True, continues=True)
