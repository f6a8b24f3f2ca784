"""`headrace check` and `headrace explain`."""

import time
from pathlib import Path
from typing import Annotated, Any, NoReturn

import msgspec
import typer

from config import default_path
from config.cases import RequestConfig, described_request, load_cases
from config.loader import ConfigError, load, read
from config.problem import Problem
from config.schema.config import Config
from config.schema.units import parse_percent, parse_rate
from gateway.features.explain import cases
from gateway.features.explain.text import binding_lines, durations_of, explained, replica_lines, step_durations
from gateway.features.explain.why import Policy
from gateway.features.pipelines import resources
from gateway.features.recording.segments import RecordError
from gateway.features.replay.policies import rollout_traffic
from gateway.features.replay.records import Records, record_key
from gateway.state.errors import StateConfigError
from gateway.terminal import measured, working
from gateway.traffic.fleet.member import FleetError

Pairs = list[str] | None


def check(
    file: Annotated[Path, typer.Argument(help="YAML file.")],
    tests: Annotated[
        Path | None, typer.Option(help="Tests of the policy. NAME.tests.yaml beside NAME.yaml when not given.")
    ] = None,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict", help="Treat warnings as errors, also limits that a restart or a second gateway forgets."
        ),
    ] = False,
    rate: Annotated[
        str | None, typer.Option(help="Requests of a rollout's route, such as 50/s: print how long its steps need.")
    ] = None,
    failures: Annotated[str, typer.Option(help="Share of requests that fail today, for --rate.")] = "1%",
    traffic: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Recorded traffic, which replaces --rate and --failures.")
    ] = None,
    record_key_env: Annotated[
        str | None, typer.Option(metavar="NAME", help="Environment variable with the key of --traffic.")
    ] = None,
) -> None:
    """Print every error and warning of a configuration, and run its tests. Exit status 1 if one fails."""
    with working(f"reads {file}"):
        reading = read(file)
    warnings = (*reading.warnings, *(reading.forgotten if strict else ()), *_by_catalogue(reading.config, file))
    for problem in (*reading.problems, *warnings, *reading.unchecked):
        typer.echo(str(problem))
    if reading.config is None or (strict and warnings):
        raise typer.Exit(1)
    beside = file.with_name(f"{file.stem}.tests{file.suffix}")
    tests = tests or (beside if beside.exists() else None)
    try:
        with working("builds the policy"):
            policy = Policy.of(reading.config)
            resources.check(reading.config)
    except StateConfigError as error:
        _stop(str(error))
    except resources.InvalidNode as error:
        _stop(str(Problem(str(file), error.line, error.path, error.message)))
    except FleetError as error:
        _stop(f"{file}: {error}")
    if rate is not None:
        for line in _durations(reading.config, rate, failures):
            typer.echo(line)
    if traffic is not None:
        for line in _recorded_durations(reading.config, traffic, record_key_env):
            typer.echo(line)
    for line in (*replica_lines(reading.config), *binding_lines(reading.config)):
        typer.echo(line)
    passed = "" if tests is None else f", {_counted(_run(policy, tests), 'test')} passed"
    warned = f", {_counted(len(reading.warnings), 'warning')}" if reading.warnings else ""
    typer.echo(f"{file}: ok{warned}{passed}")


def _by_catalogue(config: Config | None, file: Path) -> tuple[Problem, ...]:
    """Warnings about hosted models, which need the catalogue."""
    if config is None or not any(
        endpoint.url.startswith("https:") for pool in config.pools for endpoint in pool.endpoints
    ):
        return ()
    from config.catalogue.reading import SHIPPED, CatalogueError, catalogue
    from config.checks.hosted import advise

    path = config.catalogue_file or SHIPPED
    try:
        return tuple(advise(config, str(file), catalogue(path)))
    except OSError as error:
        _stop(f"{path}: {error.strerror}")
    except CatalogueError as error:
        _stop(f"{path} {error}")


def _durations(config: Config, rate: str, failures: str) -> list[str]:
    try:
        return list(step_durations(config, parse_rate(rate), parse_percent(failures)))
    except ValueError as error:
        _stop(f"error: --rate and --failures: {error}", status=2)


def _recorded_durations(config: Config, folder: Path, variable: str | None) -> list[str]:
    lines: list[str] = []
    try:
        records = Records(folder, record_key(config, variable))
        for rollout, requests, share, count, is_bound in rollout_traffic(records, config):
            failing = f"fewer than {share:.2%}" if is_bound else f"{share:.2%}"
            lines.append(f"rollout {rollout.name}: {requests:.3g} requests/s, {failing} failed ({count:,} recorded)")
            lines += durations_of(rollout, requests, share)
    except (RecordError, OSError) as error:
        _stop(f"error: --traffic: {error}", status=2)
    return lines or ["--traffic: no recorded request reaches a rollout of this file"]


def _run(policy: Policy, path: Path) -> int:
    """Run the tests of a policy and return their number. Exits with 1 if a test fails."""
    try:
        loaded = load_cases(path)
    except ConfigError as error:
        _stop(str(error))
    failures = cases.run(policy, loaded, measured(loaded.tests, "tests", len(loaded.tests)))
    for failure in failures:
        typer.echo(str(failure))
    if failures:
        _stop(f"{path}: {len(failures)} of {_counted(len(loaded.tests), 'test')} failed")
    return len(loaded.tests)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def explain(
    tenant: Annotated[str, typer.Option(help="Tenant of the request.")],
    model: Annotated[str, typer.Option(help="Model as a client writes it: NAME or NAME@VERSION.")],
    key: Annotated[str, typer.Option(help="Id of a key in the file: applies its roles, labels and scopes.")] = "",
    role: Annotated[Pairs, typer.Option(metavar="NAME", help="A role of the client. May be repeated.")] = None,
    label: Annotated[Pairs, typer.Option(metavar="K=V", help="A label of the key. May be repeated.")] = None,
    front: Annotated[
        str, typer.Option(help="chat, text_completion, embeddings, rerank, score, classify, infer or explain.")
    ] = "chat",
    header: Annotated[Pairs, typer.Option(metavar="K=V", help="A request header. May be repeated.")] = None,
    user: Annotated[str | None, typer.Option(help="End user: the `user` field of the request.")] = None,
    prompt_tokens: Annotated[int | None, typer.Option(help="Length of the prompt in tokens.")] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Requested maximum of completion tokens.")] = None,
    stream: Annotated[bool, typer.Option("--stream", help="The client requests a stream.")] = False,
    tools: Annotated[bool, typer.Option("--tools", help="The request offers tools.")] = False,
    json_schema: Annotated[bool, typer.Option("--json-schema", help="The response must match a JSON schema.")] = False,
    vision: Annotated[bool, typer.Option("--vision", help="The request contains an image.")] = False,
    batch: Annotated[bool, typer.Option("--batch", help="The request is a line of a batch.")] = False,
    at: Annotated[
        str | None,
        typer.Option(help="Time of the request: 2026-03-02T10:30 in UTC, or with +01:00. Now when not given."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="The gateway's YAML file. The bundled default when not given.")
    ] = None,
) -> None:
    """Explain the route of a request: conditions of each route, arm, pools, limits, changed fields.

    Exit status 1 if the request is refused, 2 for an invalid argument or configuration.
    """
    written: dict[str, Any] = {
        "tenant": tenant, "model": model, "key": key, "roles": role or [], "labels": _pairs("--label", label),
        "front": front, "header": _pairs("--header", header), "user": user, "prompt_tokens": prompt_tokens,
        "max_tokens": max_tokens, "stream": stream, "tools": tools, "json_schema": json_schema, "vision": vision,
        "batch": batch, "at": at,
    }  # fmt: skip
    try:
        request: RequestConfig = described_request(written)
        policy = Policy.of(load(config or default_path()))
    except (ConfigError, StateConfigError) as error:
        _stop(f"error: {error}", status=2)
    explanation = policy.explain_description(request, time.time())
    typer.echo(msgspec.json.format(msgspec.json.encode(explanation)).decode() if json else explained(explanation))
    raise typer.Exit(0 if explanation.refused is None else 1)


def _pairs(option: str, given: Pairs) -> dict[str, str]:
    """Parse options in the form ``K=V``."""
    pairs = [pair.partition("=") for pair in given or []]
    if wrong := [name for name, equals, _ in pairs if not equals]:
        _stop(f"error: {option}: expected NAME=VALUE, got {wrong[0]!r}", status=2)
    return {name: value for name, _, value in pairs}


def _stop(sentence: str, *, status: int = 1) -> NoReturn:
    typer.echo(sentence, err=status == 2)
    raise typer.Exit(status)
