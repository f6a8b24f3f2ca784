"""A server that finds names and places in texts, over the HTTP API of Presidio's analyzer."""

import argparse
import logging
import sys
from pathlib import Path

from runtimes.access import take_key
from runtimes.arguments import HelpFormatter, port, size
from runtimes.process import OneLine, importing, serve
from runtimes.recogniser.analyzers import NoPipeline, PresidioAnalyzer
from runtimes.recogniser.server import RecogniserOptions, run

_EXTRA = {"presidio_analyzer", "spacy"}


def main(arguments: list[str] | None = None) -> int:
    """Run the server. Returns the exit status: 0 after a drain, 1 if it cannot start, 2 for a wrong command line."""
    parser = _parser()
    args = parser.parse_args(arguments)
    if args.port is None and args.socket is None:
        parser.error("no listener: give --port N or --socket PATH")
    handler = logging.StreamHandler()
    handler.setFormatter(OneLine())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.getLogger("presidio-analyzer").setLevel(logging.ERROR)
    pipelines = dict(args.pipeline)
    key = take_key()
    with importing("names", _EXTRA):
        try:
            analyzer = PresidioAnalyzer(pipelines)
        except NoPipeline as error:
            print(error, file=sys.stderr)
            return 1
    options = RecogniserOptions(args.host, args.port, args.socket, args.max_body, args.exit_with_parent, key)
    return serve(run(options, analyzer, list(pipelines)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m runtimes.recogniser", description=__doc__, formatter_class=HelpFormatter
    )
    add = parser.add_argument
    add(
        "--pipeline",
        type=_pipeline,
        action="append",
        required=True,
        metavar="LANGUAGE=NAME",
        help="spaCy's pipeline of a language, such as en=en_core_web_sm, or its folder; may be repeated",
    )
    add("--host", default="127.0.0.1", help="address of the port")
    add("--port", type=port, metavar="PORT", help="HTTP port; 0 selects a free port, which is logged")
    add("--socket", type=Path, help="HTTP on this Unix socket")
    add("--max-body", type=size, default="8MiB", help="largest request body")
    add("--exit-with-parent", action="store_true", help="stop when stdin, a pipe from the parent process, closes")
    return parser


def _pipeline(text: str) -> tuple[str, str]:
    language, equals, name = text.partition("=")
    if not language or not equals or not name:
        raise argparse.ArgumentTypeError("write LANGUAGE=NAME, such as en=en_core_web_sm")
    return language, name


if __name__ == "__main__":
    sys.exit(main())
