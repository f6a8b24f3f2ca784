"""Tiny random models that read pictures, by transformers' own classes, in the layout of published folders."""

import io
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tokenizers
import torch
from PIL import Image
from tokenizers import AddedToken, decoders, models, pre_tokenizers
from transformers import AutoConfig, AutoModelForImageTextToText, PreTrainedTokenizerFast
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
from transformers.models.idefics3.processing_idefics3 import Idefics3Processor

TEMPLATE = (
    "<|im_start|>{% for message in messages %}{{message['role'] | capitalize}}"
    "{% if message['content'] is string %}{{ ': ' + message['content'] }}"
    "{% elif message['content'][0]['type'] == 'image' %}{{':'}}{% else %}{{': '}}{% endif %}"
    "{% if message['content'] is not string %}{% for line in message['content'] %}"
    "{% if line['type'] == 'text' %}{{line['text']}}{% elif line['type'] == 'image' %}{{ '<image>' }}{% endif %}"
    "{% endfor %}{% endif %}<end_of_utterance>\n{% endfor %}{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}"
)
"""SmolVLM's."""
TILE, LONGEST = 28, 84
_MARKS = ("<|im_start|>", "<end_of_utterance>", "<fake_token_around_image>", "<image>", "<global-img>")
_CELLS = [f"<row_{row}_col_{column}>" for row in range(1, 7) for column in range(1, 7)]


class SeeingModel(NamedTuple):
    """A folder, and transformers' reading of it."""

    folder: Path
    model: Any
    processor: Any


def picture(width: int, height: int, seed: int = 0, mode: str = "RGB") -> Image.Image:
    """Noise, in which every pixel counts."""
    size = len(Image.new(mode, (1, 1)).tobytes())
    noise = np.random.default_rng(seed).integers(0, 256, (height, width, size), np.uint8)
    return Image.frombytes(mode, (width, height), noise.tobytes())


def encoded(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    """The file of a picture."""
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def write_seeing_model(
    folder: Path, family: str = "idefics3", *, splits: bool = True, tile: int = TILE, **changes: Any
) -> SeeingModel:
    """A model of two layers that reads pictures, float32. `changes` are of its text's shape."""
    processor = _processor(splits=splits, tile=tile)
    tokenizer = processor.tokenizer
    end = tokenizer.convert_tokens_to_ids("<end_of_utterance>")
    text = {
        "model_type": "llama", "vocab_size": len(tokenizer), "hidden_size": 64, "intermediate_size": 96,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
        "max_position_embeddings": 1024, "initializer_range": 0.15, "eos_token_id": end, "bos_token_id": 256,
        "pad_token_id": end, "tie_word_embeddings": False,
    } | changes  # fmt: skip
    vision = {
        "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48,
        "image_size": tile, "patch_size": 7, "initializer_range": 0.2,
    }  # fmt: skip
    torch.manual_seed(0)
    image_token = tokenizer.convert_tokens_to_ids("<image>")
    config = AutoConfig.for_model(
        family, text_config=text, vision_config=vision, image_token_id=image_token, scale_factor=2
    )
    model = AutoModelForImageTextToText.from_config(config, attn_implementation="eager").eval().float()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith("bias"):
                weight.normal_(0, 0.3)
            elif "norm" in name:
                weight.add_(torch.rand_like(weight) - 0.5)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return SeeingModel(folder, model, processor)


def _processor(*, splits: bool, tile: int) -> Any:
    vocab = {character: i for i, character in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(mark, normalized=False, special=True) for mark in (*_MARKS, *_CELLS)])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<|im_start|>", eos_token="<end_of_utterance>", pad_token="<|im_start|>"
    )
    images = Idefics3ImageProcessorPil(
        do_image_splitting=splits, max_image_size={"longest_edge": tile}, size={"longest_edge": LONGEST}
    )
    return Idefics3Processor(images, tokenizer, image_seq_len=4, chat_template=TEMPLATE)
