"""The kinds of nodes that contain no other nodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field as Bounds
from pydantic import model_validator
from pydantic.json_schema import JsonSchemaValue

from config.schema.embeddings import Tokenizer
from config.schema.pipelines.call import CallConfig
from config.schema.pipelines.parts import Expression, Field, LeafConfig, Place
from config.schema.section import Section, ShortSection
from config.schema.text import Name, Shape

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


class RerankConfig(LeafConfig):
    """Orders candidates by a model, and selects the best. Its inputs are ``query`` and ``candidates``."""

    embed: Name | None = None
    """Model of embeddings. The score is the cosine of a candidate's vector and the query's."""
    score: Name | None = None
    """Model of tensors that scores rows of a query and a candidate, such as a cross-encoder with its tokenizer."""
    by: Field | None = None
    """With ``score``: the output with one score for each row; its only output when absent."""
    query: Field = "query"
    """With ``score``: input of the model for the query, repeated for each candidate."""
    candidate: Field = "candidate"
    """With ``score``: input of the model for the candidates."""
    top: int = Bounds(ge=1, le=1024)
    """Candidates that are selected."""

    @model_validator(mode="after")
    def _one_model(self) -> Self:
        if (self.embed is None) == (self.score is None):
            raise ValueError("give either `embed` or `score`: the model that orders the candidates")
        given = self.model_fields_set & {"by", "query", "candidate"}
        if self.score is None and given:
            raise ValueError(f"`{min(given)}` belongs to `score`")
        return self

    def fixed_inputs(self) -> frozenset[str]:
        return frozenset(("query", "candidates"))

    def placed_models(self) -> Iterator[tuple[Place, str]]:
        if self.embed is not None:
            yield ("embed",), self.embed
        if self.score is not None:
            yield ("score",), self.score


TemplateText = Annotated[str, Shape(r"[\s\S]{1,65536}", "a template of at most 65536 characters")]


class TemplateMessageConfig(Section):
    """One message of a chat."""

    role: Literal["system", "user", "assistant"]
    """Role of the message."""
    content: TemplateText
    """Its text. A value never adds a message or changes a role."""


class TemplateConfig(ShortSection, LeafConfig):
    """A template in the language of Jinja, without functions and attributes. A text alone is short for ``{text: …}``.

    Its variables are the inputs of its step, or the fields of the request for a step without ``in``.
    """

    short = "text"
    short_schema: ClassVar[JsonSchemaValue] = {"type": "string", "description": "The template of a text."}

    text: TemplateText | None = None
    """The text; the output is ``text``."""
    messages: tuple[TemplateMessageConfig, ...] = Bounds((), max_length=64)
    """The messages of a chat; the output is ``messages``, for the input ``messages`` of a model."""

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if (self.text is None) == (not self.messages):
            raise ValueError("a template has either `text` or `messages`")
        return self


class TokenizerConfig(LeafConfig):
    """A tokenizer: of a file, or of a language model."""

    tokenizer: Tokenizer | None = None
    """A ``tokenizer.json`` or its folder, relative to the working directory, or ``hf:ORG/NAME``."""
    model: Name | None = None
    """Model whose pools all have ``runtime: {kind: llm}``, instead of ``tokenizer``: its servers encode and decode."""

    @model_validator(mode="after")
    def _one_tokenizer(self) -> Self:
        if (self.tokenizer is None) == (self.model is None):
            raise ValueError("give one of `tokenizer` and `model`")
        return self

    def placed_models(self) -> Iterator[tuple[Place, str]]:
        if self.model is not None:
            yield ("model",), self.model

    def sends_values(self) -> bool:
        return False


class TokenizeConfig(TokenizerConfig):
    """Texts as tokens. The input is ``text``; outputs are ``ids``, ``mask``, ``types`` and ``count``, all of INT64."""

    max_tokens: int = Bounds(512, ge=1, le=1_000_000)
    """Longest text in tokens, special tokens included."""
    too_long: Literal["refuse", "cut"] = "refuse"
    """``refuse`` answers a longer text with 400, ``cut`` truncates it."""
    special: bool = True
    """Whether the tokenizer adds its special tokens."""
    pad_id: int = Bounds(0, ge=0, le=2**31 - 1)
    """Token that fills shorter rows up to the longest. ``mask`` is 0 there."""

    def fixed_inputs(self) -> frozenset[str]:
        return frozenset(("text",))


class DetokenizeConfig(TokenizerConfig):
    """Tokens as a text. The input is ``ids``, the output ``text``: a list of texts for several rows."""

    skip_special: bool = True
    """Whether special tokens are left out of the text."""

    def fixed_inputs(self) -> frozenset[str]:
        return frozenset(("ids",))


class GuardConfig(LeafConfig):
    """A classifier that blocks requests or answers. ``on_error: skip`` of its step lets them pass while it is down."""

    model: Name
    """Model that examines the text: of tensors, with an input of BYTES, or of chats."""
    block_if: Expression
    """Condition on the outputs of that model; ``text`` is the answer of a model of chats."""
    on: Literal["request", "answer"]
    """``request``: no later step starts before it has passed. ``answer``: it guards the answer of the step before."""
    input: Field | None = None
    """Input of a model of tensors that receives the text; its only input of BYTES when absent."""
    window: int = Bounds(200, ge=1, le=16_384)
    """Tokens that are examined at once, of four characters each. A stream is held back by so many."""
    overlap: int = Bounds(50, ge=0, le=16_383)
    """Tokens of a window that the next one examines again. No longer span can escape between two windows."""

    @model_validator(mode="after")
    def _advances(self) -> Self:
        if self.overlap >= self.window:
            raise ValueError("the overlap is less than the window: each window must have new text")
        return self

    def placed_models(self) -> Iterator[tuple[Place, str]]:
        yield ("model",), self.model

    def placed_conditions(self) -> Iterator[tuple[Place, str]]:
        yield ("block_if",), self.block_if


LEAVES = ("guard", "template", "rerank", "decode", "tokenize", "detokenize", "call")
"""The fields of `LeafKinds`."""


class LeafKinds(Section):
    """The kinds of a node that contain no other nodes."""

    guard: GuardConfig | None = None
    """A classifier that blocks requests or answers."""
    template: TemplateConfig | None = None
    """A text, or the messages of a chat, that is made from values."""
    rerank: RerankConfig | None = None
    """The best of several candidates, in the order of a model's scores."""
    decode: DecodeConfig | None = None
    """Pictures or sound as tensors."""
    tokenize: TokenizeConfig | None = None
    """Texts as tokens."""
    detokenize: DetokenizeConfig | None = None
    """Tokens as texts."""
    call: CallConfig | None = None
    """Python code in a process of the bundled tensor runtime."""

    def placed_leaves(self) -> Iterator[tuple[str, LeafConfig]]:
        """The kinds that are given, each with its field."""
        for name in LEAVES:
            if (leaf := getattr(self, name)) is not None:
                yield name, leaf
