"""The table of the configuration's fields: it covers Triton's message, and what it writes it reads."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.wire.protos import model_config
from config.problem import ConfigError
from runtimes.tensor.configuration.checks import check
from runtimes.tensor.configuration.message import UNSERVED
from runtimes.tensor.configuration.model_config import (
    DynamicBatching,
    ExplainRules,
    InstanceGroup,
    ModelConfig,
    QueuePolicy,
    SequenceBatching,
    SequenceControl,
    SequenceState,
    TensorSpec,
    VersionPolicy,
    Warmup,
    WarmupInput,
)
from runtimes.tensor.configuration.reading import read_override
from runtimes.tensor.configuration.table import DATATYPES, rows
from runtimes.tensor.configuration.triton import to_json

pytestmark = pytest.mark.plain
WRITTEN_BY_ITSELF = {"ModelInstanceGroup.name"}
"""Fields that follow from others."""


def names_of(field: Any) -> set[str]:
    """A row may have a field alone, or the oneof that the field belongs to."""
    return {field.name, field.containing_oneof.name} if field.containing_oneof is not None else {field.name}


def uncovered(kind: Any, descriptor: Any) -> set[str]:
    """Fields of a message, and of the messages in it, that have no row and no reason."""
    paths = [path for row in rows(kind) if not row.is_parameter for path in row.paths]
    covered = {path[0] for path in paths} | set(UNSERVED.get(kind, {}))
    missing = {f"{descriptor.name}.{field.name}" for field in descriptor.fields if not names_of(field) & covered}
    for row in rows(kind):
        for path in row.paths if row.nested is not None and not row.is_parameter else []:
            inner = descriptor.fields_by_name.get(path[0])
            if inner is not None:
                message = inner.message_type
                entry = message.fields_by_name["value"].message_type if message.GetOptions().map_entry else message
                missing |= uncovered(row.nested, entry)
    return missing


def test_every_field_of_triton_s_message_is_served_or_has_a_reason() -> None:
    assert uncovered(ModelConfig, model_config.ModelConfig.DESCRIPTOR) <= WRITTEN_BY_ITSELF
    for kind, fields in UNSERVED.items():
        named = {str(path[0]) for row in rows(kind) for path in row.paths}
        assert not named & fields.keys()


SECONDS = st.integers(0, 10**7).map(lambda microseconds: microseconds / 1_000_000)
NAMES = st.text("abcdefgh_", min_size=1, max_size=6)
DATATYPE = st.sampled_from(sorted(DATATYPES))
DIMS = st.lists(st.just(-1) | st.integers(1, 9), min_size=1, max_size=3).map(tuple)
SIZES = st.lists(st.integers(1, 8), max_size=3).map(tuple)
QUEUES = st.builds(QueuePolicy, st.integers(0, 99), SECONDS, st.sampled_from(["reject", "delay"]), st.booleans())
DYNAMIC = st.builds(
    DynamicBatching,
    preferred_batch_size=st.just((4, 8)), max_queue_delay=SECONDS, preserve_ordering=st.booleans(),
    priority_levels=st.just(3), default_priority_level=st.integers(1, 3), default_queue_policy=QUEUES,
    priority_queue_policy=st.dictionaries(st.integers(1, 3), QUEUES), allowed_batch_sizes=SIZES,
    pad_to=st.dictionaries(NAMES, SIZES.filter(bool), max_size=2),
)  # fmt: skip
FLAGS = st.builds(
    SequenceControl,
    st.sampled_from(["start", "ready", "end"]), NAMES, st.sampled_from(["INT32", "FP32"]),
    st.sampled_from([(0.0, 1.0), (-1.0, 1.0)]),
)  # fmt: skip
CONTROLS = FLAGS | st.builds(SequenceControl, st.just("corrid"), NAMES, st.sampled_from(["UINT64", "BYTES"]))
STATES = st.builds(SequenceState, NAMES, NAMES, DATATYPE, DIMS, initial_dims=st.none() | DIMS)
OLDEST = st.builds(
    SequenceBatching,
    st.just("oldest"), SECONDS.filter(bool), st.integers(0, 9), SECONDS, preferred_batch_size=st.just((2,)),
    preserve_ordering=st.booleans(), controls=st.lists(CONTROLS, max_size=3, unique_by=lambda c: c.kind).map(tuple),
    states=st.lists(STATES, max_size=1).map(tuple),
)  # fmt: skip
DIRECT = st.builds(
    SequenceBatching, max_sequence_idle=SECONDS.filter(bool), max_queue_delay=SECONDS,
    minimum_slot_utilization=st.sampled_from([0.0, 0.5, 1.0]),
)  # fmt: skip
GROUPS = st.builds(
    InstanceGroup, st.integers(1, 4), st.just("gpu"), SIZES, st.sampled_from(["auto", "thread"]), SIZES,
    st.integers(0, 3),
)  # fmt: skip
WARMUPS = st.builds(
    Warmup, NAMES, st.integers(0, 8), st.integers(1, 9),
    inputs=st.lists(st.builds(WarmupInput, NAMES, DATATYPE, SIZES, st.sampled_from(["zero", "random"])), max_size=2,
                    unique_by=lambda spec: spec.name).map(lambda specs: tuple(sorted(specs, key=lambda s: s.name))),
)  # fmt: skip
EXPLAIN = st.none() | st.builds(
    ExplainRules, st.sampled_from(["auto", "kernel", "occlusion"]), output=NAMES, budget=st.integers(1, 9),
    features=st.sampled_from(["elements", "words"]), mask=st.sampled_from(["", "[MASK]"]),
    baseline=st.none() | st.sampled_from([0.0, -0.5]), patch=st.sampled_from([(), (3, 7)]),
    seed=st.integers(0, 9), deadline=st.integers(1, 999).map(lambda eighths: eighths / 8),
)  # fmt: skip
TENSORS = st.builds(TensorSpec, NAMES, DATATYPE, DIMS)
POLICIES = st.sampled_from([VersionPolicy(), VersionPolicy("all"), VersionPolicy("specific", versions=(2, 5))])


@st.composite
def configurations(draw: st.DrawFn) -> ModelConfig:
    inputs = draw(st.lists(TENSORS, max_size=2))
    batching = draw(st.none() | DYNAMIC | OLDEST | DIRECT)
    return ModelConfig(
        "m",
        draw(st.sampled_from(["python", "onnx", "torch"])),
        inputs=tuple(replace(spec, optional=draw(st.booleans())) for spec in inputs),
        outputs=tuple(draw(st.lists(TENSORS, max_size=2))),
        max_batch_size=8,
        version_policy=draw(POLICIES),
        version_labels=draw(st.dictionaries(st.sampled_from(["stable", "canary"]), st.integers(1, 5))),
        dynamic_batching=batching if isinstance(batching, DynamicBatching) else None,
        sequence_batching=batching if isinstance(batching, SequenceBatching) else None,
        instance_groups=tuple(draw(st.lists(GROUPS, min_size=1, max_size=2))),
        decoupled=draw(st.booleans()),
        warmup=tuple(draw(st.lists(WARMUPS, max_size=2))),
        explain=draw(EXPLAIN),
        quantize=draw(st.sampled_from(["", "int8"])),
        execution_timeout=draw(st.integers(0, 999)) / 8,
        memory_bytes=draw(st.integers(0, 2**40)),
        parameters=draw(st.dictionaries(NAMES, st.text(max_size=3), max_size=2)),
    )


@given(configurations())
@settings(max_examples=50, deadline=None)
def test_a_configuration_that_is_reported_is_read_as_it_was(config: ModelConfig) -> None:
    sent = json.dumps(to_json(config))
    if list(check(config)):
        with pytest.raises(ConfigError):
            read_override(sent, "m", Path("m"), [])
        return
    read = read_override(sent, "m", Path("m"), []).config
    stored = {name: text for name, text in read.parameters.items() if not name.startswith("headrace.")}
    assert replace(read, parameters=stored) == config


@pytest.mark.parametrize(
    ("field", "place"),
    [
        ({"input": [{"name": "x", "data_type": 99, "dims": [1]}]}, r"input\[0\]\.data_type: expected a datatype"),
        (
            {"sequence_batching": {"control_input": [{"name": "c", "control": [{"kind": 99}]}]}},
            r"control_input\[0\]\.control: is required",
        ),
        ({"sequence_batching": {"control_input": [{"name": "c"}]}}, r"control_input\[0\]\.control: is required"),
    ],
)
def test_unknown_and_missing_values_are_complaints(field: dict[str, object], place: str) -> None:
    with pytest.raises(ConfigError, match=place):
        read_override(json.dumps(field), "m", Path("m"), [])
