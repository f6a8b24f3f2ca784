"""Configurations and jobs as bytes, for a process. They are rebuilt from their fields and never pickled."""

from __future__ import annotations

import dataclasses
import functools
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec

from runtimes.tensor.configuration.model_config import ModelConfig
from runtimes.tensor.instances.worker import Job

_encode = msgspec.msgpack.Encoder(enc_hook=str).encode  # of a path
_hints: Any = functools.cache(get_type_hints)


def encode_job(job: Job) -> bytes:
    return _encode(job)


def decode_job(data: bytes | memoryview) -> Job:
    job: Job = _built(Job, msgspec.msgpack.decode(data))
    return job


def encode_config(config: ModelConfig) -> bytes:
    return _encode(config)


def decode_config(data: bytes | memoryview) -> ModelConfig:
    config: ModelConfig = _built(ModelConfig, msgspec.msgpack.decode(data))
    return config


def _built(kind: Any, value: Any) -> Any:
    """The value that was encoded, by the type of its field."""
    if value is None:
        return None
    if kind is Path:
        return Path(value)
    if dataclasses.is_dataclass(kind):
        hints = _hints(kind)
        made: Any = kind
        return made(**{name: _built(hints[name], field) for name, field in value.items()})
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is tuple:
        inner = arguments[0]  # all of ours are of one type, or of plain ones
        return tuple([_built(inner, item) for item in value])
    if origin is Mapping:
        return {key: _built(arguments[1], item) for key, item in value.items()}
    if origin in (Union, types.UnionType):
        arms = [arm for arm in arguments if arm is not types.NoneType]
        return _built(arms[0], value) if len(arms) == 1 else value
    return value
