"""The program for a GPU: all of its parts with tiny models, its limits by hand, and what ends a part alone."""

import json
from pathlib import Path

import pytest
import torch

from loadtests.gpu.__main__ import PARTS, main
from loadtests.gpu.limits import Device, Work
from loadtests.gpu.run import Run
from loadtests.gpu.shapes import EXPERTS, LLAMA, made

pytestmark = pytest.mark.timeout(600)


def test_every_part_measures_or_checks_something(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")  # also for the tests that follow in this process
    assert main(["--cpu", "--minutes", "20", "--json", str(tmp_path / "figures")]) == 0
    report = json.loads((tmp_path / "figures").read_text())
    assert (report["failures"], report["skipped"]) == ({}, {})
    printed = capsys.readouterr().out
    for part in PARTS:
        assert any(figure["part"] == part for figure in report["figures"]) or f"ok   {part}: " in printed, part
    assert all(figure["value"] > 0 for figure in report["figures"])


def test_a_part_that_fails_or_has_no_time_is_reported_and_the_next_one_runs() -> None:
    now = [0.0]
    run = Run("cpu", tiny=True, seconds=10.0, clock=lambda: now[0])

    def fails(run: Run) -> None:
        now[0] += 8.0
        raise RuntimeError("no kernel image")

    run.part("one", fails, needs=9)
    run.part("two", fails, needs=3)
    run.part("three", lambda run: run.add("three", "rate", 5.0, "1/s", ratio=2.0), needs=1)
    assert run.failures == {"one": "RuntimeError: no kernel image"}
    assert list(run.skipped) == ["two"]
    assert run.as_table().splitlines()[-1] == "| three | rate | 5 1/s |  | 2.00 |"
    run.check("four", "values", False, "differ by 1")
    assert run.failures["four: values"] == "differ by 1"


def test_the_limits_of_a_model_are_its_bytes_and_its_operations() -> None:
    dense = Work.of(made(LLAMA.configuration(tiny=True), "cpu", torch.float32))
    layer = 64 * (64 + 32 + 32 + 64) + 3 * 64 * 128 + 2 * 64
    assert dense.active == 2 * layer + 64 + 512 * 64
    assert dense.kv_values == 2 * 2 * 2 * 16
    slow, fast = Device(1e3, 1e30), Device(1e30, 1e3)
    assert dense.decode_seconds(slow, 3, 10) == pytest.approx(4 * (dense.active + 30 * dense.kv_values) / 1e3)
    assert dense.decode_seconds(fast, 3, 10) == pytest.approx(2 * 3 * (dense.active + 2 * 2 * 4 * 16 * 10) / 1e3)
    assert dense.prefill_seconds(fast, 8) == pytest.approx(2 * 8 * (dense.active + 2 * 4 * 16 * 8) / 1e3)


def test_a_step_reads_the_experts_that_its_tokens_choose() -> None:
    work = Work.of(made(EXPERTS.configuration(tiny=True), "cpu", torch.float32))
    assert work.experts == 2 * 8 * 3 * 64 * 32
    assert work.used == 2 / 8
    device = Device(1.0, 1e30)
    one, many = (work.decode_seconds(device, count, 0) for count in (1, 1000))
    assert one == pytest.approx(4 * (work.shared + work.experts / 4))
    assert many == pytest.approx(4 * (work.shared + work.experts))
