"""Sequences: started, continued, ended, and all of that wrongly."""

from tests.servers.exchange import HttpRequest, infer, tensor


def step(sequence: int | str | None, number: int, *, start: bool = False, end: bool = False) -> HttpRequest:
    """One request of a sequence."""
    parameters = {"sequence_id": sequence, "sequence_start": start, "sequence_end": end}
    given = {name: value for name, value in parameters.items() if value is not None}
    return infer("accumulate", tensor("INPUT", "INT32", [1, 1], [number]), parameters=given)


SEQUENCES = {
    "a sequence": [step(101, 1, start=True), step(101, 2), step(101, 3, end=True)],
    "two side by side": [
        step(102, 1, start=True),
        step(103, 10, start=True),
        step(102, 2, end=True),
        step(103, 20, end=True),
    ],
    "of one request": [step(104, 5, start=True, end=True), step(104, 6, start=True, end=True)],
    "not started": [step(105, 1)],
    "after its end": [step(106, 1, start=True, end=True), step(106, 2)],
    "started twice": [step(107, 1, start=True), step(107, 5, start=True), step(107, 2, end=True)],
    "without an id": [step(None, 1, start=True)],
    "with the id 0": [step(0, 1, start=True)],
    "with a text as id, for a model that wants a number": [step("a name", 1, start=True, end=True)],
    "flags for a model without sequences": [
        infer(
            "add_sub_any",
            *(tensor(f"INPUT{i}", "FP32", [1, 1], [1]) for i in (0, 1)),
            parameters={"sequence_id": 9, "sequence_start": True},
        )
    ],
}
