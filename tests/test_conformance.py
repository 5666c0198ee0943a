"""The conformance harness itself: workers that die, comparisons, and that the programs are what XLA computes."""
from __future__ import annotations

import os
import time

import ml_dtypes
import numpy as np
import pytest

from tests.conformance import programs
from tests.conformance.compare import difference, mismatch, tolerance
from tests.conformance.pool import Worker, run_all
from tests.conformance.sweep import judge, names_in, sweep


def job(item):
    if item == "abort":
        os.abort()
    if item == "exit":
        os._exit(3)
    if item == "hang":
        time.sleep(600)
    return f"did {item}"


def test_workers_that_die_are_replaced():
    items = ["a", "abort", "b", "exit", "hang", "c"]
    found = {item: (result, died) for item, result, died in run_all(items, job, workers=2, timeout=3, startup=20)}
    assert found == {**{i: (f"did {i}", "") for i in "abc"}, "abort": (None, "ended with SIGABRT"),
                     "exit": (None, "ended with exit code 3"), "hang": (None, "did not end in time")}


def test_a_worker_is_asked_again():
    worker = Worker(job)
    assert [worker.ask(i) for i in "ab"] == [("did a", ""), ("did b", "")]
    assert worker.ask("abort") == (None, "ended with SIGABRT")


NAN, INF = np.nan, np.inf


@pytest.mark.parametrize("got,want,right", [
    (np.int8([1, 2]), np.int8([1, 2]), True), (np.int8([1, 2]), np.int8([1, 3]), False),
    (np.int8([1]), np.int16([1]), False), (np.int8([1]), np.int8([[1]]), False), (np.bool_([True]), np.bool_([False]), False),
    (np.float32([1.0005, NAN, INF]), np.float32([1, NAN, INF]), True), (np.float32([1.002]), np.float32([1]), False),
    (np.float32([1e-4]), np.float32([0]), True), (np.float32([2000.]), np.float32([2001]), True),
    (np.float32([NAN]), np.float32([1]), False), (np.float32([3e38]), np.float32([INF]), False),
    (np.float32([INF]), np.float32([-INF]), False), (np.float32([-0.0]), np.float32([0]), True),
    (np.float64([1 + 1e-7]), np.float64([1]), True), (np.float64([1 + 1e-5]), np.float64([1]), False),
    (np.complex64([1 + NAN * 1j]), np.complex64([1]), False), (np.complex64([1 + 2.001j]), np.complex64([1 + 2j]), True),
    (np.array([1.01], ml_dtypes.bfloat16), np.array([1], ml_dtypes.bfloat16), True),
    (np.zeros((0, 2), np.float32), np.zeros((0, 2), np.float32), True),
])
def test_comparison(got, want, right):
    assert (difference(got, want, tolerance(want.dtype)) == "") == right


def test_number_of_results():
    assert mismatch([], [np.int8(1)]) == "0 results instead of 1"


def test_programs_survive_being_kept(tmp_path):
    for name, text in list(programs.members(programs.SAMPLE))[::20]:
        made = programs.prepare(name, text)
        programs.save(tmp_path, made)
        again = programs.load(tmp_path, name)
        assert again.text == made.text and "check." not in made.text
        for a, b in zip([*made.inputs, *made.expected], [*again.inputs, *again.expected], strict=True):
            assert a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def test_programs_prepared_by_two_processes_at_once(tmp_path, monkeypatch):
    """The one that ends last takes the folder of the first and leaves nothing of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    sample = list(programs.members(programs.SAMPLE))[:1]

    def members(path):
        monkeypatch.setattr(programs, "members", lambda path: sample)
        first.append(programs.prepared(path))
        yield from sample

    first: list = []
    monkeypatch.setattr(programs, "members", members)
    assert programs.prepared(programs.SAMPLE) == first[0]
    assert os.listdir(tmp_path / "aot-conformance") == [first[0].name] and any(first[0].iterdir())


def test_xla_computes_what_is_expected():
    folder = programs.prepared(programs.SAMPLE)
    outcomes = sweep(names_in(folder)[::3], folder, "xla", workers=1)
    assert len(outcomes) > 30 and {o for o, _ in outcomes.values()} == {"right"}


def test_a_wrong_result_is_seen(tmp_path):
    made = programs.load(programs.prepared(programs.SAMPLE), "abs_bfloat16_20_20")
    programs.save(tmp_path, programs.Program("off", made.text, made.inputs, [made.expected[0] + 1]))
    programs.save(tmp_path, programs.Program("broken", made.text.replace("stablehlo.abs", "stablehlo.nothing"), made.inputs, []))
    assert judge("off", str(tmp_path), "xla", {})[0] == "wrong"
    outcome, why = judge("broken", str(tmp_path), "xla", {})
    assert outcome == "wrong" and why.startswith("exception:")


@pytest.mark.parametrize("arguments,status,text", [
    (["nope"], 2, "invalid choice: 'nope'"), (["xla", "-k", "no_such_program"], 2, "no program's name contains a match"),
    (["xla", "-k", "^abs_"], 0, "0 refused, 0 wrong, 0 crash"),
])
def test_command_line(monkeypatch, capsys, arguments, status, text):
    from tests.conformance.__main__ import main
    monkeypatch.setattr("sys.argv", ["conformance", *arguments, "--workers", "1"])
    monkeypatch.setenv("AOT_TESTDATA", "absent")
    try:
        code = main()
    except SystemExit as e:
        code = e.code
    out, err = capsys.readouterr()
    assert code == status and text in out + err
