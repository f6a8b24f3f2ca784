"""Folders of `headrace models quantize`: as near as their bits allow, and the same model for other libraries."""

import json
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from runtimes.llm.engine.executor import TorchExecutor
from runtimes.llm.model.matrix import GroupQuantized
from runtimes.llm.model.model_config import UnsupportedModel
from runtimes.llm.quantizer import main
from runtimes.llm.weights.loader import load_model, open_checkpoint
from runtimes.llm.weights.quantized_writer import Bits, quantized, write_quantized
from tests.runtimes.llm.native.models import chunk
from tests.runtimes.llm.reference import save_safetensors, tiny_llama

TOKENS = [(7 * i) % 90 for i in range(60)]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return save_safetensors(
        tiny_llama(hidden_size=64, intermediate_size=96, initializer_range=0.1), tmp_path / "source"
    )


@pytest.mark.parametrize("bits", [4, 8])
@settings(max_examples=30)
@given(
    rows=st.integers(1, 5),
    scale=st.sampled_from([0.0, 1e-3, 0.05, 30.0]),
    shift=st.sampled_from([0.0, 0.01, -3.0]),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
    seed=st.integers(0, 2**32),
)
def test_codes_are_nearer_than_even_steps(
    bits: Bits, rows: int, scale: float, shift: float, dtype: torch.dtype, seed: int
) -> None:
    weight = (torch.randn(rows, 64, generator=torch.Generator().manual_seed(seed)) * scale + shift).to(dtype)
    codes, scales = quantized(weight, bits, 32)
    middle = 1 << bits - 1
    assert int(codes.max()) < 2 * middle
    ours = (codes.float() - middle) * scales.float().repeat_interleave(32, dim=1)
    step = weight.float().unflatten(-1, (-1, 32)).abs().amax(-1, keepdim=True) / (middle - 1)
    even = ((weight.float().unflatten(-1, (-1, 32)) / step.clamp(min=1e-30)).round() * step).flatten(-2)
    errors = [float((numbers - weight.float()).square().sum()) for numbers in (ours, even)]
    # A scale of bfloat16 is off by up to 2^-9, which with numbers far from 0 is more than half a step.
    rounding = 2**-9 if dtype == torch.bfloat16 else 2**-24
    assert errors[0] <= errors[1] + float((weight.float() * rounding).square().sum()) + 1e-12


@pytest.mark.parametrize("bits", [4, 8])
def test_the_folder_is_the_model(source: Path, tmp_path: Path, bits: Bits, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runtimes.llm.weights.quantized_writer.SHARD_BYTES", 20_000)
    (source / "chat_template.jinja").write_text("x")
    assert write_quantized(source, tmp_path / "small", bits, 32) == 14
    written = {path.name for path in (tmp_path / "small").iterdir()}
    assert {"config.json", "chat_template.jinja", "model.safetensors.index.json"} <= written
    assert "model.safetensors" not in written
    assert not any(name.endswith(".part") for name in written)
    assert len([name for name in written if name.endswith(".safetensors")]) > 2
    whole, small = (load_model(path, dtype="float32", device="cpu") for path in (source, tmp_path / "small"))
    stored = load_model(tmp_path / "small", dtype="float32", device="cpu", weights="stored")
    down = stored.layers[0].down
    assert isinstance(down, GroupQuantized)
    assert (down.bits, down.group) == (bits, 32)
    logits = [
        TorchExecutor(one, 4, 16).logits([chunk(0, TOKENS, [0, 1, 2, 3])], range(60)) for one in (whole, small, stored)
    ]
    spread = float(logits[0].std())
    assert float((logits[1] - logits[0]).abs().mean()) < (0.03 if bits == 8 else 0.3) * spread
    assert float((logits[2] - logits[1]).abs().mean()) < 0.005 * spread


@pytest.mark.parametrize("bits", [4, 8])
def test_transformers_reads_the_same_numbers(source: Path, tmp_path: Path, bits: Bits) -> None:
    from transformers import AutoModelForCausalLM

    write_quantized(source, tmp_path / "small", bits, 32)
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "small", dtype=torch.float32).eval()
    ours = load_model(tmp_path / "small", dtype="float32", device="cpu")
    with torch.inference_mode():
        expected = theirs(torch.tensor([TOKENS])).logits[0]
    logits = TorchExecutor(ours, 4, 16).logits([chunk(0, TOKENS, [0, 1, 2, 3])], range(60))
    torch.testing.assert_close(logits, expected, atol=2e-4, rtol=1e-4)


def test_no_two_tensors_are_read_at_once(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shard is written before the tensor after it is read."""
    monkeypatch.setattr("runtimes.llm.weights.quantized_writer.SHARD_BYTES", 1)
    write_quantized(source, tmp_path / "small", 4, 32)
    index = json.loads((tmp_path / "small" / "model.safetensors.index.json").read_text())["weight_map"]
    for name, shard in index.items():
        with safe_open(tmp_path / "small" / shard, "pt") as file:
            assert list(file.keys()) == [name]


def test_models_that_cannot_be_quantized_are_refused(source: Path, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match="no matrix whose rows are groups of 128"):
        write_quantized(source, tmp_path / "odd", 4, 128)
    write_quantized(source, tmp_path / "small", 4, 32)
    with pytest.raises(UnsupportedModel, match="small is quantized already"):
        write_quantized(tmp_path / "small", tmp_path / "again", 8, 32)
    with pytest.raises(FileExistsError):
        write_quantized(source, tmp_path / "small", 8, 32)


@pytest.mark.parametrize("fails", ["save_file", "shutil.copyfile"])
def test_a_run_that_fails_leaves_no_folder(
    source: Path, tmp_path: Path, fails: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError("no space left on device")

    (source / "tokenizer.json").write_text("{}")
    monkeypatch.setattr(f"runtimes.llm.weights.quantized_writer.{fails}", full)
    with pytest.raises(OSError, match="no space left"):
        write_quantized(source, tmp_path / "small", 4, 32)
    assert list(tmp_path.iterdir()) == [source]
    monkeypatch.undo()
    write_quantized(source, tmp_path / "small", 4, 32)
    assert sorted(tmp_path.iterdir()) == [tmp_path / "small", source]
    assert (tmp_path / "small").stat().st_mode == source.stat().st_mode


@pytest.fixture
def command(source: Path, tmp_path: Path) -> list[str]:
    """The command line for a model with a tokenizer of 96 characters, and a text."""
    vocabulary = {character: id for id, character in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet())[:96])}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    backend.save(str(source / "tokenizer.json"))
    text = tmp_path / "text"
    text.write_text("the quick brown fox jumps over the lazy dog " * 20)
    return [str(source), str(tmp_path / "small"), "--bits", "8", "--text", str(text), "--tokens", "300"]


def test_the_command_compares_perplexities(
    command: list[str], source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command) == 0
    printed = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in printed] == [
        "perplexity before", str(tmp_path / "small"), "perplexity after",
    ]  # fmt: skip
    assert any(codes for _, codes in open_checkpoint(tmp_path / "small").stored_shapes)
    assert main(command) == 1
    assert "cannot quantize" in capsys.readouterr().err
    save_file({"a": torch.ones(2)}, source / "model.safetensors")
    assert main([str(source), str(tmp_path / "none"), "--tokens", "0"]) == 1


def test_the_command_calibrates(command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = tmp_path / "texts.jsonl"
    texts.write_text("\n".join(json.dumps({"text": f"{word} jumps over " * 20}) for word in ("fox", "dog", "x")))
    calibrated = [*command, "--method", "gptq", "--calibration", str(texts), "--calibration-length", "150"]
    assert main([*calibrated, "--no-act-order"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert [printed[0], printed[2]] == [
        "calibration: 3 texts, 450 tokens",
        f"{tmp_path / 'small'}: 14 matrices of 8 bits",
    ]
    assert printed[3].startswith("perplexity after: ")
    texts.write_text('"a few words alone, and no more"')
    assert main([command[0], str(tmp_path / "other"), *calibrated[2:]]) == 1
    refused = capsys.readouterr()
    assert "have 24 tokens, which are too few" in refused.err
    assert not refused.out  # nothing was computed for it
    assert not (tmp_path / "other").exists()


def test_calibration_texts_end_with_the_context_of_the_model(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = tmp_path / "texts.jsonl"
    texts.write_text("\n".join(json.dumps(f"{word} jumps over " * 30) for word in ("fox", "dog")))
    assert main([*command, "--method", "awq", "--calibration", str(texts)]) == 0
    assert capsys.readouterr().out.startswith("calibration: 2 texts, 512 tokens\n")


def test_a_model_that_cannot_be_computed_is_refused_before_anything_is_written(
    command: list[str], source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps(config | {"model_type": "mamba"}))
    assert main([*command, "--method", "gptq", "--calibration", str(tmp_path / "text")]) == 1
    assert "architecture 'mamba' is not supported" in capsys.readouterr().err
    assert not (tmp_path / "small").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--method", "gptq"], "--method gptq needs --calibration"),
        (["--calibration", "x"], "--method rtn takes no --calibration"),
        (["--method", "awq", "--calibration", "x", "--no-act-order"], "--act-order is of --method gptq"),
        (["--calibration-texts", "0"], "0 is not a number from 1 to 4096"),
        (["--calibration-length", "9000"], "9000 is not a number from 16 to 8192"),
    ],
)
def test_wrong_command_lines(
    command: list[str], arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([*command, *arguments])
    assert message in capsys.readouterr().err
