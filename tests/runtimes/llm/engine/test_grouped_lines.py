"""The order of a batch's lines gains from the prefix cache: the engine's scheduler runs them in both orders."""

import json
from random import Random
from string import ascii_lowercase

import pytest

from policies.batches.order import arranged, entries_of, examine_lines
from runtimes.llm.engine.block_manager import BlockManager
from runtimes.llm.engine.scheduler import Scheduler
from runtimes.llm.engine.step_budget import SchedulerConfig
from runtimes.llm.sequence import Sampled, SamplingParams, Sequence

pytestmark = pytest.mark.plain
GROUPS, EACH, RUNNING = 40, 12, 8
PAGES = 512
"""Pages of 16 tokens: those of the running sequences and of a few shared starts, but not of all."""


def lines(start: int) -> list[bytes]:
    """Lines in random order, of groups with the same system message of `start` bytes."""
    rng, made = Random(3), list[bytes]()
    for group in range(GROUPS):
        system = "".join(Random(group).choices(ascii_lowercase, k=start))
        for number in range(EACH):
            question = "".join(rng.choices(ascii_lowercase, k=200))
            messages = [{"role": "system", "content": system}, {"role": "user", "content": question}]
            body = {"model": "chat", "messages": messages}
            line = {"custom_id": f"{group}-{number}", "method": "POST", "url": "/v1/chat/completions", "body": body}
            made.append(json.dumps(line).encode() + b"\n")
    rng.shuffle(made)
    return made


def cached(prompts: list[bytes]) -> int:
    """The tokens that the prefix cache saves: a token is a byte of the messages."""
    bounds = SchedulerConfig(max_model_len=4096, max_num_seqs=RUNNING, max_num_batched_tokens=512, max_queue=10_000)
    scheduler = Scheduler(bounds, BlockManager(PAGES, 16))
    waiting, running = list(enumerate(prompts)), 0
    while waiting or running:
        while waiting and running < RUNNING:
            number, prompt = waiting.pop(0)
            scheduler.add(Sequence(number, list(prompt), SamplingParams(max_tokens=4)))
            running += 1
        batch = scheduler.schedule()
        outputs = scheduler.update(batch, {one.sequence_id: Sampled(5) for one in batch.chunks if one.samples})
        running -= sum(output.finish_reason is not None for output in outputs.values())
    return scheduler.num_cached_tokens


@pytest.mark.parametrize("start", [150, 400, 900])
def test_grouped_lines_find_their_start_in_the_cache(start: int) -> None:
    written = lines(start)
    examined = examine_lines(b"".join(written), "/v1/chat/completions", 1, 0)
    order, _ = arranged(examined.entries, examined.ids)
    numbers = [entry.number for entry in entries_of(order)]
    assert sorted(numbers) == list(range(1, len(written) + 1))
    prompts = [json.dumps(json.loads(line)["body"]["messages"]).encode() for line in written]
    grouped, as_written = cached([prompts[number - 1] for number in numbers]), cached(prompts)
    shareable = GROUPS * (EACH - 1) * (start // 16) * 16
    assert grouped >= 0.9 * shareable
    assert grouped >= 1.5 * as_written
