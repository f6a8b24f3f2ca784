"""The members that the processes of an ensemble load."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from runtimes.tensor.backends.base import Device, Instance, ModelLoadError
from runtimes.tensor.configuration import triton
from runtimes.tensor.configuration.model_config import DynamicBatching, ModelConfig
from runtimes.tensor.ensembles.members import Describe, Member, members_of, order_of, version_of
from runtimes.tensor.ensembles.processes.copy import EnsembleCopy
from runtimes.tensor.ensembles.processes.worker import EnsembleWorker
from runtimes.tensor.instances import placement
from runtimes.tensor.instances.worker import Job, MemberJob
from runtimes.tensor.requests.services import ModelServices

FolderOf = Callable[[str, str], Path]
"""The folder of a loaded version, by model and version. Raises `NotFound` or `Unavailable`."""
_PROCESS_PARAMETERS = ("interpreter", "memory_limit")


def batching_of(config: ModelConfig, members: Sequence[Member]) -> DynamicBatching | None:
    """The way in which requests wait for a process: by the rules of the first step's model."""
    assert config.ensemble is not None
    return members[order_of(config.ensemble)[0]].config.dynamic_batching


def unfit(members: Sequence[Member]) -> Iterator[str]:
    """The reasons why the steps cannot run in one process."""
    for member in members:
        config = member.config
        if config.ensemble is not None:
            yield f"{member.name} is an ensemble"
        if config.decoupled:
            yield f"{member.name} sends any number of responses"
        if config.sequence_batching is not None:
            yield f"{member.name} has sequences"
        for name in _PROCESS_PARAMETERS:
            if name in config.parameters:
                yield f"{member.name} has the parameter `{name}`, which is for a process of its own"


async def start(
    config: ModelConfig, folder: Path, describe: Describe, folder_of: FolderOf, services: ModelServices
) -> Sequence[Instance]:
    """The processes of an ensemble, with all members loaded. Raises `ModelLoadError`; then none stays."""
    members = members_of(config, describe)
    if problems := list(unfit(members)):
        raise ModelLoadError(f"`processes` does not fit this ensemble: {'; '.join(problems)}")
    jobs = _members(members, describe, folder_of)
    seconds = config.execution_timeout or sum(
        member.config.execution_timeout or placement.EXECUTION_SECONDS for member in members
    )
    threads = max(max(job.device.threads for job in jobs), 1)
    share = max(1, len(os.sched_getaffinity(0)) // config.processes)
    device = Device(None, min(threads, share))
    make = functools.partial(EnsembleWorker, services)
    copies: list[EnsembleCopy] = []
    for number in range(config.processes):
        job = Job(f"{config.name}_{number}", config.backend, config, folder, device, members=tuple(jobs))
        copies.append(EnsembleCopy(job, make, seconds, members))
    await placement.load_all(copies)
    return copies


def _members(members: Sequence[Member], describe: Describe, folder_of: FolderOf) -> list[MemberJob]:
    """Each model once, with its steps."""
    steps: dict[tuple[str, str], list[int]] = {}
    for member in members:
        number, _ = describe(member.step.model, version_of(member.step))
        steps.setdefault((member.step.model, number), []).append(member.index)
    jobs = []
    for (model, number), indexes in steps.items():
        config = members[indexes[0]].config
        folder = folder_of(model, number)
        whole = placement.takes_requests(config, folder)
        description = json.dumps(triton.to_json(config)) if whole else ""
        jobs.append(MemberJob(tuple(indexes), number, config, folder, _device(config, folder), description))
    return jobs


def _device(config: ModelConfig, folder: Path) -> Device:
    """The device of the model's first copy."""
    (job, _), *_ = placement.jobs(config, folder)
    return job.device
