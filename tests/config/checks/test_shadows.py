"""Shadows that compare nothing, cannot be compared, or would have effects: each with its line."""

import pytest

from tests.config.conftest import Complaints

FILE = """\
version: 1
pools:
  - {name: v1, endpoints: [http://10.0.0.5:8000]}
  - {name: v2, endpoints: [http://10.0.0.6:8000]}
  - {name: t1, protocol: oip-http, endpoints: [http://10.0.0.7:8000]}
  - {name: t2, protocol: oip-http, endpoints: [http://10.0.0.8:8000]}
models:
  - name: chat
    routes:
      - to: v1
        shadow: {to: v2}
  - name: tensors
    routes:
      - to: t1
        shadow: {to: t2}
  - {name: other, routes: [{to: v2}]}
  - {name: fam-*, routes: [{to: v2}]}
  - name: caller
    pipeline:
      steps:
        - {name: own, call: {model: tensors}}
tenants: [{name: acme, models: ["*"]}]
"""
CHAT = "models[0].routes[0].shadow"
TENSORS = "models[1].routes[0].shadow"


def valid() -> str:
    return (
        "\n".join(
            line
            for line in FILE.splitlines()
            if "caller" not in line
            and line.strip() not in ("pipeline:", "steps:", "- {name: own, call: {model: tensors}}")
        )
        + "\n"
    )


def test_shadows_are_valid(complaints: Complaints) -> None:
    assert complaints(valid()) == []


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("shadow: {to: v2}", "shadow: {to: v22}", f'11: {CHAT}.to: no pool is named "v22" (did you mean "v2"?)'),
        (
            "shadow: {to: v2}",
            "shadow: {to: v2, at_most: {spend: 5 usd/day}}",
            f'11: {CHAT}.at_most.spend: needs a price of the model "chat": without one its copies cost nothing',
        ),
        (
            "shadow: {to: v2}",
            "shadow: {to: {model: other}, at_most: {spend: 5 usd/day}}",
            f'11: {CHAT}.at_most.spend: needs a price of the model "other": without one its copies cost nothing',
        ),
        (
            "shadow: {to: v2}",
            "shadow: {to: v1}",
            f"11: {CHAT}.to: is the pool of the route: there is nothing to compare",
        ),
        (
            "shadow: {to: v2}",
            "shadow: {to: {model: othr}}",
            f'11: {CHAT}.to.model: no model is named "othr" (did you mean "other"?)',
        ),
        (
            "shadow: {to: v2}",
            "shadow: {to: {model: chat}}",
            f"11: {CHAT}.to.model: is the model of the route: there is nothing to compare",
        ),
        (
            "shadow: {to: v2}",
            "shadow: {to: {model: fam-1}}",
            f"11: {CHAT}.to.model: is served by a family: name a model that has one name",
        ),
        ("shadow: {to: v2}", "shadow: {to: t1}", f"11: {CHAT}.to: answers with tensors, and the route with texts"),
        ("shadow: {to: t2}", "shadow: {to: v1}", f"15: {TENSORS}.to: answers with texts, and the route with tensors"),
        (
            "shadow: {to: v2}",
            "shadow: {to: {pool: v2, version: '2'}}",
            f"11: {CHAT}.to.version: has no effect: versions are for models of tensors; for a chat, use "
            "`rewrite: {model: NAME}`",
        ),
        (
            "shadow: {to: t2}",
            "shadow: {to: {pool: t2, name: v2}}",
            f'15: {TENSORS}: has the name "v2", as the shadow on line 11 has: give it one',
        ),
        ("shadow: {to: v2}", "shadow: {to: v2, share: 0%}", f"11: {CHAT}.share: a share is over 0% and at most 100%"),
        ("shadow: {to: v2}", "shadow: {to: v2, answers: 9}", f"11: {CHAT}.answers: has no effect without `agree`"),
        (
            "shadow: {to: v2}",
            "shadow: {to: v2, compare: {tensors: {top_k: 1}}}",
            f"11: {CHAT}.compare.tensors: has no effect: the route answers with texts",
        ),
        (
            "shadow: {to: t2}",
            "shadow: {to: t2, compare: {text: [exact]}}",
            f"15: {TENSORS}.compare.text: has no effect: the route answers with tensors",
        ),
        (
            "shadow: {to: v2}",
            "shadow: {to: v2, compare: {text: [{same: exact, edit: 90%}]}}",
            f"11: {CHAT}.compare.text[0]: is one test: give same, edit, embedding or judge",
        ),
        (
            "shadow: {to: t2}",
            "shadow: {to: t2, compare: {tensors: {top_k: 1, rtol: 0.1}}}",
            f"15: {TENSORS}.compare.tensors.rtol: has no effect beside `top_k`, which compares positions and not "
            "values",
        ),
        (
            "shadow: {to: t2}",
            "shadow: {to: t2, compare: {exact: true, tensors: {top_k: 1}}}",
            f"15: {TENSORS}.compare.tensors: has no effect beside `exact`, which compares the bytes",
        ),
        (
            "shadow: {to: v2}",
            "shadow: {to: v2, compare: {text: [exact, {judge: othr}]}}",
            f'11: {CHAT}.compare.text[1].judge: no model is named "othr" (did you mean "other"?)',
        ),
        (
            "shadow: {to: v2}",
            "shadow: {to: v2, compare: {text: [{embedding: tensors}]}}",
            f"11: {CHAT}.compare.text[0].embedding: takes tensors, and is given texts",
        ),
        (
            "shadow: {to: v2}",
            "shadow: {to: v2, compare: {text: [{judge: other, least: 0.5}]}}",
            f"11: {CHAT}.compare.text[0].least: has no effect without `embedding`",
        ),
        (
            "shadow: {to: v2}",
            "shadow: {to: v2, compare: {json: {ignore: [id]}}}",
            f"11: {CHAT}.compare.json.ignore[0]: expected a path such as $.id or $.items[*].created",
        ),
    ],
)
def test_a_mistake_is_reported(complaints: Complaints, old: str, new: str, problem: str) -> None:
    assert complaints(valid().replace(old, new)) == [problem]


def test_fewer_copies_than_workers(complaints: Complaints) -> None:
    file = valid().replace("version: 1\n", "version: 1\nworkers: 8\n")
    file = file.replace("shadow: {to: v2}", "shadow: {to: v2, at_most: {concurrency: 4}}")
    message = "is below `workers` (8), and each worker may send one copy at least"
    assert complaints(file) == [f"12: {CHAT}.at_most.concurrency: {message}"]


def test_a_route_with_a_rollout_has_no_shadow(complaints: Complaints) -> None:
    rollout = "rollout: {name: r, from: v1, to: v2, steps: [{weight: 1%}]}"
    message = "has no effect beside `rollout`, whose arms answer differently themselves"
    assert f"11: {CHAT}: {message}" in complaints(valid().replace("to: v1\n        sh", f"{rollout}\n        sh"))


def test_a_target_with_effects_is_refused(complaints: Complaints) -> None:
    file = FILE.replace("shadow: {to: t2}", "shadow: {to: {model: caller}}")
    message = "leads to the step `own`, whose call may have effects: copies must not"
    assert f"15: {TENSORS}.to.model: {message}" in complaints(file)


ROLLOUT = "rollout: {name: r, from: v1, to: v2, steps: [{weight: 1%}], shadow_first: {share: 5%}}"


def test_a_rollout_may_begin_with_copies(complaints: Complaints) -> None:
    file = valid().replace("to: v1\n        shadow: {to: v2}", ROLLOUT)
    assert complaints(file) == []
    assert complaints(file.replace("{share: 5%}", "{share: 5%, answers: 1000}")) == []
    named = file.replace("name: r,", "name: t2,")
    message = 'has the name "t2", as the shadow on line 10 has: give it one'
    assert complaints(named) == [f"14: {TENSORS}: {message}"]


def test_the_arms_of_a_rollout_with_copies_have_no_effects(complaints: Complaints) -> None:
    rollout = ROLLOUT.replace("from: v1, to: v2", "from: t1, to: {model: caller}")
    message = "leads to the step `own`, whose call may have effects: copies must not"
    file = FILE.replace("to: t1\n        shadow: {to: t2}", rollout)
    assert f"14: models[1].routes[0].rollout.to.model: {message}" in complaints(file)


def test_samples_need_texts(complaints: Complaints, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECORD_KEY", "k" * 32)
    record = "version: 1\nrecord: {to: ./traffic, key: '${RECORD_KEY}', bodies: digest}\n"
    file = valid().replace("version: 1\n", record).replace("{to: v2}\n  - name", "{to: v2, samples: 5}\n  - name")
    message = "would store texts, and `record` has `bodies: digest`"
    assert complaints(file) == [f"12: {CHAT}.samples: {message}"]
