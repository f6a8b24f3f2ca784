"""Tiny random models of Hugging Face, saved as their own library saves them."""

import json
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    BertConfig,
    PreTrainedTokenizerFast,
    ViTConfig,
    ViTForImageClassification,
    ViTImageProcessorPil,
    Wav2Vec2Config,
    Wav2Vec2CTCTokenizer,
    Wav2Vec2FeatureExtractor,
    Wav2Vec2ForCTC,
    WhisperConfig,
    WhisperFeatureExtractor,
    WhisperForConditionalGeneration,
    WhisperTokenizer,
    YolosConfig,
    YolosForObjectDetection,
    YolosImageProcessorPil,
)
from transformers.convert_slow_tokenizer import bytes_to_unicode

WORDS = (
    "one", "a", "longer", "text", "with", "some", "more", "words", "12", "numbers", ",", "and", "3", "signs", "!",
    "the", "city", "of", "Rome", "is", "big", "good", "bad",
)  # fmt: skip
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LIMIT = 32
"""The longest text of these models, in tokens."""


def save_tokenizer(folder: Path, **more: Any) -> int:
    """A tokenizer of words and letters. Returns the number of its tokens."""
    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    vocabulary = dict.fromkeys([*SPECIAL, *WORDS, *letters, *(f"##{letter}" for letter in letters)])
    tokens = {token: number for number, token in enumerate(vocabulary)}
    tokenizer = Tokenizer(models.WordPiece(tokens, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), SPECIAL, strict=True))
    inputs = ["input_ids", "token_type_ids", "attention_mask"]
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_input_names=inputs, **names, **more).save_pretrained(
        folder
    )
    return len(tokens)


def save_bert(folder: Path, kind: Any, **settings: Any) -> Path:
    """A BERT with a head of any kind, and its tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    tokens = save_tokenizer(folder)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    config = BertConfig(
        vocab_size=tokens, max_position_embeddings=LIMIT, initializer_range=0.6, **{**sizes, **settings}
    )
    save_model(folder, kind, config)
    return folder


def save_model(folder: Path, kind: Any, config: Any) -> None:
    """A model with the same random weights each time."""
    torch.manual_seed(7)
    kind(config).eval().save_pretrained(folder)


def change(path: Path, **fields: Any) -> None:
    """Change fields of a JSON file; None removes one."""
    written = {**json.loads(path.read_text()), **fields}
    path.write_text(json.dumps({key: value for key, value in written.items() if value is not None}))


SMALL: dict[str, Any] = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32,
    "initializer_range": 0.6, "patch_size": 16,
}  # fmt: skip


def save_vit(folder: Path, **settings: Any) -> Path:
    """A classifier of pictures, which are resized to one size."""
    folder.mkdir(parents=True, exist_ok=True)
    save_model(folder, ViTForImageClassification, ViTConfig(image_size=32, **SMALL, **settings))
    ViTImageProcessorPil(size={"height": 32, "width": 32}).save_pretrained(folder)
    return folder


def save_yolos(folder: Path, **settings: Any) -> Path:
    """A detector of objects, whose pictures have their own proportions."""
    folder.mkdir(parents=True, exist_ok=True)
    config = YolosConfig(
        image_size=[64, 64], num_detection_tokens=6, use_mid_position_embeddings=False, **SMALL, **settings
    )
    save_model(folder, YolosForObjectDetection, config)
    YolosImageProcessorPil(size={"shortest_edge": 48, "longest_edge": 64}).save_pretrained(folder)
    return folder


def save_wav2vec2(folder: Path, **settings: Any) -> Path:
    """A model of speech that answers letters, for sound of 16 kHz."""
    folder.mkdir(parents=True, exist_ok=True)
    letters = {token: number for number, token in enumerate(["<pad>", "<s>", "</s>", "<unk>", "|", *"abcdefgh"])}
    (folder / "vocab.json").write_text(json.dumps(letters))
    Wav2Vec2CTCTokenizer(str(folder / "vocab.json")).save_pretrained(folder)
    Wav2Vec2FeatureExtractor(feature_size=1, return_attention_mask=True).save_pretrained(folder)
    config = Wav2Vec2Config(
        vocab_size=len(letters), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
        conv_dim=(8, 8), conv_stride=(160, 2), conv_kernel=(400, 3), num_feat_extract_layers=2,
        num_conv_pos_embeddings=4, num_conv_pos_embedding_groups=2, feat_extract_norm="layer",
        do_stable_layer_norm=True, initializer_range=0.6, pad_token_id=0, **settings,
    )  # fmt: skip
    save_model(folder, Wav2Vec2ForCTC, config)
    return folder


def save_whisper(folder: Path) -> Path:
    """A model of speech that writes bytes, for sound of at most 30 seconds."""
    folder.mkdir(parents=True, exist_ok=True)
    words = ("endoftext", "startoftranscript", "en", "translate", "transcribe", "startoflm", "startofprev", "nospeech")
    times = [f"{tick * 0.02:.2f}" for tick in range(1501)]
    special = [f"<|{word}|>" for word in (*words, "notimestamps", *times)]
    tokens = {token: number for number, token in enumerate([*bytes_to_unicode().values(), *special])}
    end, start, last = special[0], tokens[special[1]], tokens[special[len(words)]]
    names = dict.fromkeys(("unk_token", "bos_token", "eos_token", "pad_token"), end)
    tokenizer = WhisperTokenizer(vocab=tokens, merges=[], **names)
    tokenizer.add_special_tokens({"additional_special_tokens": special[1 : len(words) + 1]})
    tokenizer.save_pretrained(folder)
    WhisperFeatureExtractor(feature_size=8).save_pretrained(folder)
    config = WhisperConfig(
        vocab_size=len(tokens), num_mel_bins=8, d_model=16, encoder_layers=1, decoder_layers=1, init_std=0.6,
        encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=32, decoder_ffn_dim=32,
        max_target_positions=24, decoder_start_token_id=start, begin_suppress_tokens=[tokens[end]],
        **dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id"), tokens[end]),
    )  # fmt: skip
    torch.manual_seed(7)
    model = WhisperForConditionalGeneration(config).eval()
    settings = {
        "no_timestamps_token_id": last, "is_multilingual": False, "return_timestamps": False, "max_length": 24,
        "suppress_tokens": list(range(tokens[end] + 1, len(tokens))),
    }  # fmt: skip
    for name, value in settings.items():
        setattr(model.generation_config, name, value)
    model.save_pretrained(folder)
    return folder
