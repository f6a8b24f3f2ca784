"""Measures the replay of recorded decisions: CPU seconds of one core for a million records.

    python -m loadtests.bench_replay [--records 1000000] [--recorded 20000]

A gateway's core in this process decides and records requests: conditions, a sticky split, a rollout, fallbacks, limits
and a price. Their encrypted entries are repeated until there are enough, and replayed under the recorded file, which
must change no decision, and under a file with other weights. The last line is one JSON object.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from typing import Any

from adapters.errors import BackendError
from adapters.fake import FakeAdapter, Script
from config.schema.config import Config
from gateway.features.recording.segments import ENTRIES, POLICY, SegmentReader, SegmentWriter
from gateway.features.replay.policies import replay_policies
from gateway.features.replay.records import Records
from gateway.features.replay.report import Report
from tests.support.gateways import chat, config
from tests.support.recorded import KEY, RecordingRig, recorder_of, recording

POOLS = ("main", "candidate")
_SENT, _FAILED = Script(), Script(fault=BackendError("no"))


def configuration(folder: Path, weight: int = 20) -> Config:
    """The recorded file, or one with another weight of the split."""
    split = {
        "sticky": "user",
        "arms": [{"pool": "main", "weight": 100 - weight}, {"pool": "candidate", "weight": weight}],
    }
    rollout = {"name": "r", "from": "main", "to": "candidate", "steps": [{"weight": "5%", "for": "1h"}]}
    routes: list[dict[str, Any]] = [
        {"when": {"prompt_tokens": ">2000"}, "to": "candidate"},
        {"when": {"tenant": ["gold*"]}, "rollout": rollout, "fallback": ["main"]},
        {"split": split, "fallback": ["main"]},
    ]
    limits = [{"requests": "100000/s", "tokens": "100000000/min", "concurrency": 1000}]
    return config(
        pools=[{"name": name, "endpoints": ["http://127.0.0.1:9"], "breaker": {"failures": 1000}} for name in POOLS],
        models=[{"name": "chat", "routes": routes, "price": {"prompt": "1 usd/1M", "completion": "2 usd/1M"}}],
        tenants=[{"name": "acme", "models": ["*"], "limits": limits}],
        record=recording(folder, bodies="digest"),
    )


async def record(folder: Path, count: int) -> None:
    """Decide and record requests of a thousand users."""
    dice = Random(1)
    answers = {name: [*dice.choices((_SENT, _FAILED), (30, 1), k=count), _SENT] for name in POOLS}
    one = RecordingRig(configuration(folder), {name: [FakeAdapter(*answers[name])] for name in POOLS})
    async with recorder_of(one):
        for _ in range(count):
            words = "word " * dice.choice((4, 40, 4000))
            request = chat("chat", messages=[{"role": "user", "content": words}], user=f"user-{dice.randrange(1000)}")
            await one.send(request)
            await asyncio.sleep(0)


def repeat(source: Path, target: Path, records: int) -> int:
    """Write the decisions again until there are so many. Returns their number."""
    recorded = len(list(Records(source, KEY)))
    frames = [
        frame
        for path in Records(source, KEY).paths
        for frame in SegmentReader(path, KEY).frames()
        if frame.kind in (POLICY, ENTRIES)
    ]
    target.mkdir()
    times = -(-records // recorded)
    for number in range(times):
        writer = SegmentWriter(target / f"{number:06}-0.segment", KEY)
        for frame in frames:
            writer.write(frame.kind, frame.content)
        writer.close()
    return times * recorded


def replayed(folder: Path, under: Config) -> tuple[Report, float]:
    """The report, and the CPU seconds of the replay."""
    began = time.process_time()
    report = replay_policies(Records(folder, KEY), under)
    return report, time.process_time() - began


def main(written: list[str]) -> int:
    """Record, repeat, replay. The exit status is 1 if a decision changes under the same file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--recorded", type=int, default=20_000)
    arguments = parser.parse_args(written)
    with tempfile.TemporaryDirectory() as name:
        source, target = Path(name) / "source", Path(name) / "target"
        asyncio.run(record(source, arguments.recorded))
        count = repeat(source, target, arguments.records)
        same, seconds = replayed(target, configuration(source))
        other, other_seconds = replayed(target, configuration(source, weight=30))
    print(f"{count:,} decisions, same file: {seconds:.1f} CPU s, changed {same.counts}")
    print(f"{count:,} decisions, a split of 30 in place of 20 %: {other_seconds:.1f} CPU s, changed {other.counts}")
    figures = {"decisions": count, "same_seconds": round(seconds, 2), "other_seconds": round(other_seconds, 2)}
    print(json.dumps({**figures, "changed": dict(same.counts), "changed_by_weight": dict(other.counts)}))
    return 1 if same.counts or not same.requests == other.requests == count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
