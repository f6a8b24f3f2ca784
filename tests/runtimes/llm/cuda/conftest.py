"""Kernels run on the GPU where there is one, else a number at a time in Triton's interpreter."""

import os
from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(scope="module", autouse=True)
def interpreter() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        if not torch.cuda.is_available():
            patch.setenv("TRITON_INTERPRET", "1")
        yield


before = os.environ.get("TRITON_INTERPRET")
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # a kernel looks when it is defined, too
import runtimes.llm.cuda.attention  # noqa: E402, F401

if before is None:
    os.environ.pop("TRITON_INTERPRET", None)
