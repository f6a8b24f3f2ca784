"""Ensembles are checked against the models of their steps, and each error names the step."""

from dataclasses import replace

import pytest

from adapters.errors import NotFound
from runtimes.tensor.configuration.model_config import Ensemble, EnsembleStep, ModelConfig, TensorSpec
from runtimes.tensor.interfaces import ModelLoadError
from runtimes.tensor.models.members import Describe, completed

pytestmark = pytest.mark.plain
IN, OUT = TensorSpec("X", "FP32", (2,)), TensorSpec("Y", "FP32", (2,))
MODEL = ModelConfig("a", "onnx", (IN,), (OUT,), 8)
CHAIN = ModelConfig(
    "chain",
    "ensemble",
    (TensorSpec("IN", "FP32", (2,)),),
    (TensorSpec("OUT", "FP32", (2,)),),
    8,
    "ensemble",
    ensemble=Ensemble((EnsembleStep("a", {"X": "IN"}, {"Y": "mid"}), EnsembleStep("b", {"X": "mid"}, {"Y": "OUT"}))),
)


def of(**models: ModelConfig) -> Describe:
    """The models of a repository, each in version 1."""

    def describe(name: str, version: str) -> tuple[str, ModelConfig]:
        if name not in models or version not in ("", "1"):
            raise NotFound(f"Request for unknown model: '{name}' version {version} is not found")
        return "1", models[name]

    return describe


def refused(config: ModelConfig, **models: ModelConfig) -> str:
    with pytest.raises(ModelLoadError) as caught:
        completed(config, of(**models))
    return str(caught.value)


def changed(**fields: object) -> ModelConfig:
    return replace(MODEL, **fields)  # type: ignore[arg-type]


def test_models_that_fit_make_an_ensemble() -> None:
    assert completed(CHAIN, of(a=MODEL, b=MODEL)) == CHAIN


def test_a_decoupled_model_makes_the_ensemble_decoupled() -> None:
    assert completed(CHAIN, of(a=changed(decoupled=True), b=MODEL)).decoupled
    assert completed(CHAIN, of(a=MODEL, b=changed(decoupled=True))).decoupled


@pytest.mark.parametrize(
    ("member", "reported"),
    [
        (changed(max_batch_size=4), "ensemble allows maximum batch size 8, but it contains step 1 (`b`), which only"),
        (
            changed(inputs=(TensorSpec("Z", "FP32", (2,)),)),
            "ensemble tensor mid is mapping to non-existing input X of step 1 (`b`), which has Z; "
            "input Z of step 1 (`b`) is not mapped to any ensemble tensor",
        ),
        (
            changed(inputs=(IN, TensorSpec("Z", "FP32", (2,)))),
            "input Z of step 1 (`b`) is not mapped to any ensemble tensor",
        ),
        (
            changed(outputs=(TensorSpec("YY", "FP32", (2,)),)),
            "ensemble tensor OUT is mapped from non-existing output Y of step 1 (`b`) (did you mean",
        ),
        (
            changed(inputs=(TensorSpec("X", "INT32", (2,)),)),
            "ensemble tensor mid: inconsistent data type: FP32 is inferred from step 0 (`a`) while INT32 is inferred"
            " from step 1 (`b`)",
        ),
        (
            changed(inputs=(TensorSpec("X", "FP32", (3,)),)),
            "ensemble tensor mid: inconsistent shape: [-1,2] is inferred from step 0 (`a`) while [-1,3] is inferred"
            " from step 1 (`b`)",
        ),
        (
            changed(outputs=(TensorSpec("Y", "FP32", (2, 2)),)),
            "ensemble tensor OUT: inconsistent shape: [-1,2] is inferred from the ensemble while [-1,2,2]",
        ),
        (
            changed(max_batch_size=0, inputs=(TensorSpec("X", "FP32", (4, 3)),)),
            "ensemble tensor mid: inconsistent shape",
        ),
    ],
)
def test_a_model_that_does_not_fit_is_named(member: ModelConfig, reported: str) -> None:
    message = refused(CHAIN, a=MODEL, b=member)
    assert message.startswith("in ensemble 'chain': ")
    assert reported in message


def test_a_missing_model_and_a_missing_version_are_named() -> None:
    assert refused(CHAIN, a=MODEL).startswith(
        "ensemble 'chain' depends on 'b' in step 1 (`b`), which has no loaded version: "
    )
    steps = (EnsembleStep("a", {"X": "IN"}, {"Y": "OUT"}, version=7),)
    message = refused(replace(CHAIN, ensemble=Ensemble(steps)), a=MODEL)
    assert "step 0 (`a`)" in message
    assert "version 7" in message


def test_optional_inputs_need_no_tensor() -> None:
    optional = changed(inputs=(IN, TensorSpec("Z", "FP32", (2,), optional=True)))
    assert completed(CHAIN, of(a=MODEL, b=optional)) == CHAIN


def test_variable_dimensions_and_other_batching_fit() -> None:
    free = changed(inputs=(TensorSpec("X", "FP32", (-1,)),))
    whole = changed(
        max_batch_size=0, inputs=(TensorSpec("X", "FP32", (-1, 2)),), outputs=(TensorSpec("Y", "FP32", (-1, 2)),)
    )
    assert completed(CHAIN, of(a=MODEL, b=free)) == CHAIN
    assert completed(CHAIN, of(a=MODEL, b=whole)) == CHAIN


def test_tensors_of_different_decoupled_models_are_not_joined() -> None:
    both = changed(inputs=(IN, TensorSpec("Z", "FP32", (2,))))
    steps = (
        EnsembleStep("a", {"X": "IN"}, {"Y": "mid"}),
        EnsembleStep("b", {"X": "mid", "Z": "IN"}, {"Y": "OUT"}),
    )
    config = replace(CHAIN, ensemble=Ensemble(steps))
    assert completed(config, of(a=MODEL, b=both)) == config
    message = refused(config, a=changed(decoupled=True), b=both)
    assert "step 1 (`b`) receives inputs originated from different decoupled models" in message


def test_outputs_of_different_decoupled_models_are_not_joined() -> None:
    steps = (
        EnsembleStep("a", {"X": "IN"}, {"Y": "OUT"}),
        EnsembleStep("b", {"X": "IN"}, {"Y": "OUT2"}),
    )
    config = replace(CHAIN, outputs=(*CHAIN.outputs, TensorSpec("OUT2", "FP32", (2,))), ensemble=Ensemble(steps))
    message = refused(config, a=changed(decoupled=True), b=MODEL)
    assert "the outputs of the ensemble originate from different decoupled models" in message
