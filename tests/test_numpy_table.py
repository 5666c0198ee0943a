"""A sample of the table in numpy_cases.py: every function agrees with jax in value, dtype, weak type, shape and error."""
from __future__ import annotations

import os
import sys
from collections import defaultdict

import pytest

jax = pytest.importorskip("jax")
sys.path.insert(0, os.path.dirname(__file__))

import jax.numpy as theirs
import numpy_cases

import aot.numpy as ours

PER_NAME = int(os.environ.get("AOT_NUMPY_CASES", "1"))


def sample(per_name: int) -> list[tuple[str, list[numpy_cases.Case]]]:
    """For each name, this many cases spread over its part of the table; the middle one comes first."""
    by_name: dict[str, list] = defaultdict(list)
    for case in numpy_cases.cases():
        by_name[case.name].append(case)
    picked = []
    for name, cases in by_name.items():
        step = max(1, len(cases) // per_name)
        picked.append((name, cases[(len(name) * 7) % step::step][:per_name]))
    return picked


SAMPLE = sample(PER_NAME)


@pytest.mark.parametrize("start", range(0, len(SAMPLE), 20))
def test_agrees_with_jax(start):
    """Twenty names at a time: a test a case would cost more than the case."""
    wrong = []
    for name, cases in SAMPLE[start:start + 20]:
        for case in cases:
            got, expected = numpy_cases.call(ours, case, ours.asarray), numpy_cases.call(theirs, case, theirs.asarray)
            found = numpy_cases.difference(got, expected, case.tolerance, name not in numpy_cases.LOSES_WEAK_TYPE)
            if found:
                wrong.append(f"{case}: {found}")
    assert not wrong, "\n\n".join(wrong)
