"""`python -m runtimes.tensor.ensembles.processes.loading`: all members of an ensemble, in one process."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from runtimes.tensor.ensembles.processes.arrays import ArrayMember
from runtimes.tensor.ensembles.processes.calls import MemberModel, StepCall
from runtimes.tensor.ensembles.processes.execution import EnsembleSteps
from runtimes.tensor.ensembles.processes.messages import Progress
from runtimes.tensor.ensembles.processes.requests import RequestMember
from runtimes.tensor.instances import child
from runtimes.tensor.instances.quantization import loaded
from runtimes.tensor.instances.worker import Job, MemberJob, resident_bytes
from runtimes.tensor.interfaces import ModelLoadError
from runtimes.tensor.models.members import Member
from runtimes.tensor.models.warmup import inference_of
from runtimes.tensor.requests import messages
from runtimes.tensor.requests.open_request import message_of
from runtimes.tensor.triton_api import process, requests
from runtimes.tensor.triton_api.channel import RequestChannel
from runtimes.tensor.triton_api.model import TritonModel


def warm_up(member: MemberJob, model: MemberModel) -> None:
    """Send all warm-up requests of a member to its model. Raises `ModelLoadError` for the first that fails."""
    requested = tuple([spec.name for spec in member.config.outputs])
    for warmup in member.config.warmup:
        inference = inference_of(member.config, warmup, member.folder.parent)
        head, _ = message_of(0, inference, requested)
        for _ in range(warmup.count):
            call = StepCall(head, inference, requested)
            model.execute(member.steps[0], [call])
            if call.error is not None:
                raise ModelLoadError(f"warm-up `{warmup.name}` failed: {call.error.message}")


def load(job: Job, channel: RequestChannel) -> EnsembleSteps:
    """The steps of the job's ensemble, warmed up. Raises `ModelLoadError`, or the exception of a model."""
    ensemble = job.config.ensemble
    assert ensemble is not None
    _check_modules(job.members)
    models: dict[int, MemberModel] = {}
    configs = {}
    for member in job.members:
        try:
            model = _loaded(job, member)
        except Exception as error:
            raise ModelLoadError(f"its model `{member.config.name}` cannot be loaded: {error}") from error
        models.update(dict.fromkeys(member.steps, model))
        configs.update(dict.fromkeys(member.steps, member.config))
    _connect(channel)
    for member in job.members:
        try:
            warm_up(member, models[member.steps[0]])
        except ModelLoadError as error:
            raise ModelLoadError(f"its model `{member.config.name}`: {error}") from error
    members = [Member(index, step, configs[index]) for index, step in enumerate(ensemble.steps)]
    return EnsembleSteps(job.config, members, [models[member.index] for member in members])


def serve(job: Job, channel: child.ProcessChannel, progress: int) -> None:
    """Load all models of an ensemble, and execute its requests until the server closes the connection."""
    started, before = time.monotonic(), resident_bytes()
    assert process.connection is not None
    steps = load(job, process.connection)
    child.report(channel, started, before, {})
    steps.serve(process.connection, Progress(progress))
    steps.close()


def _connect(channel: RequestChannel) -> None:
    """Let the members call models of the server."""
    channel.handlers[messages.CALL_RESPONSE] = requests.arrived
    process.executing = True
    process.executor = threading.get_ident()


def _loaded(job: Job, member: MemberJob) -> MemberModel:
    """One member. Modules of its folder are its own."""
    process.description, process.folder = member.description, member.folder
    process.instance = f"{member.config.name}_{job.name}"
    own = [str(member.folder), str(member.folder.parent)]
    others, before = list(sys.path), frozenset(sys.modules)
    sys.path[:] = [*own, *others]
    try:
        result = loaded(Job(process.instance, member.config.backend, member.config, member.folder, member.device))
    finally:
        sys.path[:] = [*others, *own]
        # The model's file is a module of the same name in every version's folder: the next member imports its own.
        for name in [name for name in sys.modules if name not in before and name.partition(".")[0].isdecimal()]:
            del sys.modules[name]
    if isinstance(result.model, TritonModel):
        return RequestMember(member.config, result.model, member.folder)
    return ArrayMember(member.config, result.model, lambda text: print(text, file=sys.stderr, flush=True))


def _check_modules(members: tuple[MemberJob, ...]) -> None:
    """Raises `ModelLoadError` for modules of one name beside two models: one process imports a name once."""
    owners: dict[str, str] = {}
    for member in members:
        file = member.config.default_model_filename or "model.py"
        for name in set(_modules(member.folder, file)):
            other = owners.setdefault(name, member.config.name)
            if other != member.config.name:
                raise ModelLoadError(
                    f"`{other}` and `{member.config.name}` both have a module `{name}`, and one process imports it"
                    " once: rename one of them, or leave `processes` out"
                )


def _modules(folder: Path, model_file: str) -> Iterator[str]:
    """Names that Python code of a model may import from its version's folder and from the model's."""
    for path in (*folder.iterdir(), *folder.parent.iterdir()):
        if path.suffix == ".py" and path.name != model_file:
            yield path.stem
        elif path.is_dir() and path.name.isidentifier() and path.name != "__pycache__" and any(path.glob("*.py")):
            yield path.name


if __name__ == "__main__":
    sys.exit(child.main(serve))
