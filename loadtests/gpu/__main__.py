"""Measures the LLM engine and the tensor runtime on a GPU: kernels against the reference, answers against
transformers, memory, graphs; then tokens a second and times to a first token beside transformers and the limits of the
device.

Without a GPU it runs every part with tiny models, to see that it works.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import torch

from loadtests.gpu.answers import answers, graphs, memory
from loadtests.gpu.kernels import kernels
from loadtests.gpu.limits import Device, device_limits
from loadtests.gpu.run import Run
from loadtests.gpu.shapes import EXPERTS, LLAMA, QWEN
from loadtests.gpu.speed import speed
from loadtests.gpu.tensors import tensors

PARTS = ("kernels", "answers", "graphs", "memory", QWEN.name, LLAMA.name, EXPERTS.name, "tensors")


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.gpu", description=__doc__)
    parser.add_argument("--minutes", type=float, default=7.5, help="the time that may be taken (7.5)")
    parser.add_argument("--json", type=Path, help="a file for the figures")
    parser.add_argument("--folder", type=Path, help="where models are written: 20 GB of free space")
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=PARTS, help="some of the parts")
    parser.add_argument("--cpu", action="store_true", help="tiny models on the CPU although there is a GPU")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the parts in order. Returns 1 if one of them failed."""
    options = parse(argv)
    on_gpu = torch.cuda.is_available() and not options.cpu
    run = Run("cuda" if on_gpu else "cpu", not on_gpu, options.minutes * 60)
    name = torch.cuda.get_device_name() if on_gpu else "CPU, tiny models"
    print(f"{name}, PyTorch {torch.__version__}, Python {sys.version.split()[0]}", flush=True)
    limits: list[Device] = []
    run.part("limits", lambda run: limits.append(device_limits(run)), 5)
    device = limits[0] if limits else Device(float("inf"), float("inf"))
    each: dict[str, tuple[Callable[[Run], None], float]] = {
        "kernels": (kernels, 40),
        "answers": (answers, 40),
        "graphs": (graphs, 20),
        "memory": (memory, 30),
        **{
            shape.name: (partial(speed, shape=shape, device=device, folder=options.folder, full=full), needs)
            for shape, full, needs in ((QWEN, True, 50), (LLAMA, on_gpu, 110), (EXPERTS, False, 60))
        },
        "tensors": (tensors, 40),
    }
    for part, (does, needs) in each.items():
        if part in options.parts:
            run.part(part, does, needs if on_gpu else 5)
        if options.json is not None:
            options.json.write_text(run.as_json())
    print(run.as_table(), run.as_json(), sep="\n")
    return 1 if run.failures else 0


if __name__ == "__main__":
    sys.exit(main())
