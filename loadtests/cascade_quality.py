"""Compares models of a gateway on questions with known answers: `python -m loadtests.cascade_quality --help`.

`questions.jsonl` has 100 short questions. An answer is correct if it contains the known answer as a whole word, in any
case; alternatives are separated by `|`. The table shows correct answers, tokens, and the median time of an answer. For
a cascade, tokens are the sum of all stages that ran.
"""

import argparse
import json
import re
import statistics
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

QUESTIONS = Path(__file__).with_name("questions.jsonl")


@dataclass(frozen=True, slots=True)
class ReferenceAnswer:
    """A question and its accepted answers."""

    question: str
    answers: tuple[str, ...]

    def is_correct(self, text: str) -> bool:
        """Whether a text contains an accepted answer as a whole word."""
        return any(re.search(rf"(?<!\w){re.escape(answer)}(?!\w)", text.lower()) for answer in self.answers)


@dataclass(frozen=True, slots=True)
class Quality:
    """The results of one model."""

    model: str
    questions: int
    correct: int
    prompt_tokens: int
    completion_tokens: int
    median_seconds: float


def questions(path: Path = QUESTIONS) -> list[ReferenceAnswer]:
    """The questions of a file of JSON lines with `question` and `answer`."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [ReferenceAnswer(row["question"], tuple(row["answer"].lower().split("|"))) for row in rows]


def measure(url: str, key: str, model: str, listed: Sequence[ReferenceAnswer], fields: dict[str, object]) -> Quality:
    """Send every question to a model as a chat, one after the other."""
    correct = prompt = completion = 0
    seconds = []
    for each in listed:
        body = {"model": model, "messages": [{"role": "user", "content": each.question}], "temperature": 0, **fields}
        headers = {"content-type": "application/json", "authorization": f"Bearer {key}"}
        request = urllib.request.Request(f"{url}/v1/chat/completions", json.dumps(body).encode(), headers)
        begin = time.perf_counter()
        with urllib.request.urlopen(request, timeout=120) as response:
            answer = json.load(response)
        seconds.append(time.perf_counter() - begin)
        correct += each.is_correct(answer["choices"][0]["message"]["content"] or "")
        prompt += answer["usage"]["prompt_tokens"]
        completion += answer["usage"]["completion_tokens"]
    return Quality(model, len(listed), correct, prompt, completion, statistics.median(seconds))


def table(results: Sequence[Quality]) -> str:
    """The results as a table of Markdown."""
    lines = ["| model | correct | prompt tokens | completion tokens | median time |", "|---|---|---|---|---|"]
    lines += [
        f"| `{each.model}` | {each.correct} of {each.questions} | {each.prompt_tokens} | {each.completion_tokens} "
        f"| {each.median_seconds * 1000:.0f} ms |"
        for each in results
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", help="names of models, such as those of a cascade and the cascade itself")
    parser.add_argument("--url", default="http://127.0.0.1:8080")
    parser.add_argument("--key", default="demo", help="API key of the gateway")
    parser.add_argument("--every", type=int, default=1, help="only each nth question")
    parser.add_argument("--fields", type=json.loads, default={}, help='fields of the body, such as {"max_tokens": 24}')
    options = parser.parse_args()
    chosen = questions()[:: options.every]
    print(table([measure(options.url, options.key, model, chosen, options.fields) for model in options.models]))


if __name__ == "__main__":
    main()
