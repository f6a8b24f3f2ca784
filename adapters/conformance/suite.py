"""All checks, in the order of the matrix."""

import asyncio

from adapters.conformance import answers, conduct, failures
from adapters.conformance.bench import Bench, Check, Nonconforming
from adapters.conformance.matrix import Cell, Verdict
from adapters.conformance.subject import Subject
from adapters.errors import InferenceError

CHECKS: tuple[Check, ...] = (*answers.CHECKS, *failures.CHECKS, *conduct.CHECKS)
FEATURES = tuple(check.feature for check in CHECKS)
LONGEST = 150.0
"""Seconds of one check."""


async def examine(check: Check, subject: Subject) -> Cell:
    """Run one check for one system. The cell reports every failure of the server or the adapter."""
    lacks, unseen = subject.lacks.get(check.feature, ""), subject.unseen.get(check.feature, "")
    run = None if unseen else check.absence if lacks else check.run
    lacks = lacks or unseen
    why = ""
    try:
        async with asyncio.timeout(LONGEST), Bench(subject) as bench:
            if run is not None:
                await run(bench)
    except Nonconforming as error:
        why = str(error)
    except TimeoutError:
        why = f"did not end within {LONGEST:g} s"
    except InferenceError as error:
        why = f"{type(error).__name__}: {error.message}"
    except Exception as error:  # an adapter may raise only InferenceError
        why = f"{type(error).__name__}, which is no InferenceError: {error}"
    verdict: Verdict = "failed" if why else "absent" if lacks else "passed"
    return Cell(
        system=subject.system,
        feature=check.feature,
        verdict=verdict,
        why=why or lacks,
        how=subject.how,
        version=subject.version,
    )
