"""The price of a guard, as CPU time of the gateway for a request and for a chunk of a stream.

Gateways of ours differ in their guards alone. Their points are short and interleaved. The words are made, and no text
of the benchmark has one. `examined` is the same guard without a gateway: the text of a chunk alone.
"""

import random
import string
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table

from config.schema.guards import WordsGuardConfig
from loadtests.figures import rounds
from loadtests.figures.ratios import Summary, summarise
from loadtests.gateways.headrace import config, create_key
from loadtests.gateways.workloads import Figure, Generator, Point, Workload, closed, streams
from loadtests.servers import Gateway, Launch, Site, Target, free_port
from policies.guards.compiled import rules_of
from policies.guards.masking import HeldText, by_view

OFF = "no guard"
WORDS = 1000
CHUNK = 20
"""Characters of a chunk of `examined`."""
SIDES: dict[str, list[str]] = {
    OFF: [],
    "words, monitored": ["prompt", "answer"],
    "words in prompts": ["prompt"],
    "words in prompts and answers": ["prompt", "answer"],
}
"""The sides that the guard of each gateway examines."""
REQUEST = Figure("request_us", lambda load, cpu: cpu / max(load.completed, 1) * 1e6)
PER_CHUNK = Figure("chunk_us", lambda load, cpu: cpu / max(load.tokens, 1) * 1e6)
WORKLOADS: dict[str, Workload] = {
    "a request": replace(closed(16), figures=(REQUEST,)),
    "a chunk": replace(streams(64), figures=(PER_CHUNK,)),
}


def words(count: int = WORDS) -> list[str]:
    """So many words that nobody writes, the same in every run."""
    draw = random.Random(count)
    return ["".join(draw.choices(string.ascii_lowercase, k=draw.randint(6, 12))) for _ in range(count)]


def guard(name: str) -> dict[str, Any]:
    """The guard of a gateway."""
    mode = {"mode": "monitor"} if "monitored" in name else {}
    return {"name": "words", "kind": "words", "words": words(), "action": "mask", "on": SIDES[name], **mode}


def written(name: str, site: Site, admin_port: int) -> dict[str, Any]:
    """The configuration with this guard."""
    made = config(site, admin_port)
    if SIDES[name]:
        made["guards"] = [guard(name)]
        made["models"][0]["guards"] = ["words"]
    return made


def launch(name: str, site: Site, python: Path) -> Launch:
    """A gateway with this guard."""
    file = site.folder / "headrace.yaml"
    file.write_text(yaml.safe_dump(written(name, site, free_port()), sort_keys=False))
    return Launch([str(python), "-m", "gateway", "serve", "--config", str(file)], create_key(python, file))


def target_of(name: str) -> str:
    """The name of the gateway with a guard."""
    return f"headrace-guards-{name.replace(', ', '-').replace(' ', '-')}"


def gateways() -> list[Gateway]:
    """One for each guard."""
    return [Gateway(target_of(name), lambda: Path(sys.executable), partial(launch, name)) for name in SIDES]


def measured(
    targets: Sequence[Target], generator: Generator, count: int, seconds: float, progress: Callable[[str], None]
) -> dict[str, Sequence[rounds.Round]]:
    """The rounds of each workload. A round with other work on the machine is used too: it adds to all targets."""

    def point(target: Target, workload: Workload) -> Point:
        seen = generator.measure(workload, target, seconds)
        shown = ", ".join(f"{value:.1f} {name}" for name, value in seen.figures.items())
        progress(f"{workload.name} {target.name}: {shown or f'{seen.failed} wrong or missing answers'}")
        return seen

    return {
        name: rounds.run(targets, count, partial(point, workload=workload), float("inf"), lambda: None).accepted
        for name, workload in WORKLOADS.items()
    }


def prices(accepted: Mapping[str, Sequence[rounds.Round]]) -> dict[tuple[str, str], tuple[Summary, Summary]]:
    """For each workload and guard: µs, and the difference from no guard in the same round. Rounds with wrong answers
    do not count."""
    made: dict[tuple[str, str], tuple[Summary, Summary]] = {}
    for workload, all_rounds in accepted.items():
        figure = WORKLOADS[workload].figures[0].name
        right = [one for one in all_rounds if all(figure in figures for figures in one.values())]
        for name in SIDES:
            own = summarise([one[target_of(name)][figure] for one in right])
            more = summarise([one[target_of(name)][figure] - one[target_of(OFF)][figure] for one in right])
            if own is not None and more is not None:
                made[workload, name] = own, more
    return made


def examined(repetitions: int = 15) -> Summary:
    """µs of CPU for the text of a chunk behind the guard, without the gateway: the median, the least and the most."""
    section = WordsGuardConfig.model_validate(guard("words in prompts and answers"))
    rules = by_view(rules_of(section, 0))
    text = "Inference gateways add overhead, and this text stands in for the answer of a small model. " * 20
    chunks = [text[at : at + CHUNK] for at in range(0, len(text), CHUNK)]
    taken = []
    for _ in range(repetitions):
        begun = time.process_time()
        for _ in range(20):
            held = HeldText(rules, lambda _: None)
            for chunk in chunks:
                held.feed(chunk)
            held.end()
        taken.append((time.process_time() - begun) / 20 / len(chunks) * 1e6)
    return Summary(median(taken), min(taken), max(taken))


def print_table(accepted: Mapping[str, Sequence[rounds.Round]], text: Summary) -> None:
    """Print the prices."""
    count = len(next(iter(accepted.values())))
    title = f"CPU time behind a guard of {WORDS} words, {count} rounds: median (lowest–highest)"
    table = Table(title=title, title_justify="left")
    for column in ("of", "guard", "µs", "more than without, µs"):
        table.add_column(column)
    for (workload, name), (own, more) in prices(accepted).items():
        difference = "" if name == OFF else f"{more.median:+.1f} ({more.low:+.1f} to {more.high:+.1f})"
        table.add_row(workload, name, f"{own.median:.1f} ({own.low:.1f}–{own.high:.1f})", difference)
    alone = f"{text.median:.2f} ({text.low:.2f}–{text.high:.2f})"
    table.add_row(f"a chunk's text, {CHUNK} characters", "the same words, without a gateway", alone, "")
    Console().print(table)
