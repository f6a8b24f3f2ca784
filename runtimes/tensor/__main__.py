"""A server for models of any framework, over the Open Inference Protocol."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from pathlib import Path

from adapters.process import drop_unlisted, sweep
from config.stores import StoreAddress, address_of, folder_of
from runtimes.access import take_key
from runtimes.arguments import MAX_HELD_HELP, HelpFormatter, duration, explained, held_bytes, port, positive, size
from runtimes.process import importing
from runtimes.tensor.api.log_settings import LogSettings, SettingsFormatter
from runtimes.tensor.api.restrictions import parse
from runtimes.tensor.catalogue.repository import CATALOGUE

# The modules of the extra tensor.
_EXTRA = {"google", "google.protobuf", "numpy", "hpack"}


def main(arguments: list[str] | None = None) -> int:
    """Run the server. Returns the exit status: 0 after a drain, 1 if it cannot start, 2 for a wrong command line."""
    parser = _parser()
    args = parser.parse_args(arguments)
    if all(where is None for where in (args.http_port, args.grpc_port, args.socket, args.grpc_socket)):
        parser.error("no listener: give --http-port N, --grpc-port N, --socket PATH or --grpc-socket PATH")
    if args.load and args.mode != "explicit":
        parser.error("--load is for --mode explicit: in the others all models are loaded")
    if args.add and not isinstance(args.repository[0], Path):
        parser.error("--add needs a folder as the first --repository")
    logs = _log_to_stderr()
    key = take_key()
    environment = dict(os.environ)  # with the credentials of the repositories, which models do not get
    drop_unlisted(os.environ, args.pass_env)
    # OpenMP's idle threads would spin beside those of the models. A framework reads this when it is imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    with importing("tensor", _EXTRA):
        from runtimes.tensor.api.server import ServerOptions, run
        from runtimes.tensor.models.manager import ManagerOptions
        from runtimes.tensor.stores import StoreOptions
        from runtimes.wheels import cache_folder
    models = ManagerOptions(
        mode=args.mode,
        models=tuple(args.load),
        poll_seconds=args.poll_interval,
        load_seconds=args.load_timeout,
        drain_seconds=args.drain_timeout,
        parallel_loads=args.parallel_loads,
        memory_budget=args.memory_budget,
    )
    options = ServerOptions(
        repositories=tuple(args.repository),
        models=models,
        stores=StoreOptions(cache_folder() / "repositories", args.repository_cache, environment),
        added=tuple(args.add),
        host=args.host,
        http_port=args.http_port,
        grpc_port=args.grpc_port,
        http_socket=args.socket,
        grpc_socket=args.grpc_socket,
        max_body=args.max_body,
        max_held=held_bytes(parser, args.max_held, args.max_body),
        cache_size=args.cache_size,
        shared_memory=tuple(args.shared_memory),
        restrict=tuple(args.restrict),
        trace_file=args.trace_file,
        drain_seconds=args.drain_timeout,
        exit_with_parent=args.exit_with_parent,
        key=key,
    )
    sweep()
    return run(options, logs)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m runtimes.tensor", description=__doc__, formatter_class=HelpFormatter
    )
    _where(parser.add_argument_group("where to listen"))
    _models(parser.add_argument_group("models"))
    add = parser.add_argument
    add("--max-body", type=size, default="64MiB", help="largest request body")
    add("--max-held", type=size, help=MAX_HELD_HELP)
    add(
        "--cache-size",
        type=size,
        default="64MiB",
        help="memory for cached responses of all models with a response cache",
    )
    add(
        "--shared-memory",
        action="append",
        default=[],
        metavar="GLOB",
        help="let clients use POSIX shared memory with matching keys; may be repeated",
    )
    add(
        "--restrict",
        action="append",
        type=explained(parse),
        default=[],
        metavar="GROUP,GROUP:HEADER=SECRET",
        help="require this header for these parts of the interface; may be repeated",
    )
    add(
        "--pass-env",
        action="append",
        default=[],
        metavar="GLOB",
        help="pass matching environment variables to models, beside the usual ones; may be repeated",
    )
    add("--trace-file", default="", help="file for request traces that clients enable; none if not given")
    add("--exit-with-parent", action="store_true", help="stop when stdin, a pipe from the parent process, closes")
    return parser


def _where(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--host", default="127.0.0.1", help="address of the ports")
    add("--http-port", type=port, metavar="PORT", help="HTTP port; 0 selects a free port, which is logged")
    add("--grpc-port", type=port, metavar="PORT", help="gRPC port; 0 selects a free port")
    add("--socket", type=Path, help="HTTP on this Unix socket")
    add("--grpc-socket", type=Path, help="gRPC on this Unix socket")


def _models(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add(
        "--repository",
        type=explained(_place),
        action="append",
        required=True,
        metavar="PLACE",
        help="folder of models, or the URL of an archive that is pulled; may be repeated",
    )
    add("--repository-cache", type=size, default="64GiB", help="disk for files of models that are pulled")
    add(
        "--mode",
        choices=["none", "explicit", "poll"],
        default="none",
        help="none: load all models once; explicit: those of --load and on request; poll: follow changes of the folder",
    )
    add(
        "--load",
        action="append",
        default=[],
        metavar="MODEL",
        help="model to load with --mode explicit; `*` for all; may be repeated",
    )
    add(
        "--add",
        choices=list(CATALOGUE),
        action="append",
        default=[],
        metavar="MODEL",
        help="model of `headrace models list` to download into the first repository, if it is absent; may be repeated",
    )
    add("--poll-interval", type=duration, default="5s", help="time between two scans with --mode poll")
    add("--load-timeout", type=duration, default="10m", help="longest time to load one version of a model")
    add("--drain-timeout", type=duration, default="30s", help="how long SIGTERM waits for requests in flight")
    add("--parallel-loads", type=positive, default=2, help="versions loaded at the same time")
    add("--memory-budget", type=size, default="0", help="memory of all loaded models, such as 4GiB; 0 for no bound")


def _place(text: str) -> Path | StoreAddress:
    folder = folder_of(text)
    return address_of(text) if folder is None else folder


def _log_to_stderr() -> LogSettings:
    settings = LogSettings()
    handler = logging.StreamHandler()
    handler.setFormatter(SettingsFormatter(settings))
    handler.addFilter(settings)
    logging.basicConfig(level=logging.DEBUG, handlers=[handler])
    logging.getLogger("asyncio").setLevel(logging.WARNING)
    return settings


if __name__ == "__main__":
    sys.exit(main())
