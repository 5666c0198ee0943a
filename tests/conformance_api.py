"""The whole table of numpy_cases.py against jax: `python tests/conformance_api.py [REGEX]` prints pass and fail counts.

`python tests/conformance_api.py --trace [REGEX]` compares instead how long both take to trace one call of each function,
again and again in one trace, and prints the ratios.

For every case: value, shape, dtype, weak type and error type. For every differentiable one: jvp and vjp, second-order
jvp, and vmap over each argument against a loop. Takes about twenty minutes on two cores.
"""
from __future__ import annotations

import os
import re
import sys
import time
from collections import Counter

os.environ.setdefault("JAX_PLATFORMS", "cpu")
sys.path.insert(0, os.path.dirname(__file__))

import jax
import jax.numpy as theirs
import numpy as np
import numpy_cases

import aot
import aot.numpy as ours


def functions(module, case):
    """The call as a function of its float32 arrays, returning its float32 results; and those arrays."""
    fun = module
    for part in case.name.split("."):
        fun = getattr(fun, part)
    where = [i for i, a in enumerate(case.args) if isinstance(a, np.ndarray) and a.dtype == np.float32]

    def f(*xs):
        args = [numpy_cases.given(a, module, lambda x: x) for a in case.args]
        for i, x in zip(where, xs):
            args[i] = x
        return [y for y in numpy_cases.leaves(fun(*args, **case.kwargs)) if str(getattr(y, "dtype", "")) == "float32"]

    return f, [case.args[i] for i in where]


def derivatives(library, module, case):
    """jvp, vjp and the jvp of the jvp, as one list of arrays."""
    f, xs = functions(module, case)
    xs = [module.asarray(x) for x in xs]
    dots = [module.asarray(numpy_cases.values(x.shape, seed=7)) for x in xs]
    out, dot = library.jvp(f, xs, dots)
    cotangents = [module.asarray(numpy_cases.values(y.shape, seed=17)) for y in out]
    back = library.vjp(f, *xs)[1](cotangents)
    _, second = library.jvp(lambda *xs: library.jvp(f, list(xs), dots)[1], xs, dots)
    return [*dot, *back, *second]


def batched(case):
    """vmap over each argument in turn, and what a loop gives."""
    f, xs = functions(ours, case)
    got, expected = [], []
    for k in range(len(xs)):
        args = [ours.asarray(x) for x in xs]
        args[k] = ours.asarray(np.stack([xs[k], xs[k] * 0.5]))
        axes = tuple(0 if i == k else None for i in range(len(xs)))
        got += aot.vmap(f, in_axes=axes)(*args)
        rows = [f(*[a[i] if j == k else a for j, a in enumerate(args)]) for i in range(2)]
        expected += [np.stack([np.asarray(a), np.asarray(b)]) for a, b in zip(*rows)]
    return got, expected


def close(got, expected, tolerance):
    bound = 256 * (tolerance or 16) * 1.2e-7
    pairs = [(np.asarray(a), np.asarray(b)) for a, b in zip(got, expected, strict=True)]
    return all(np.allclose(a, b, rtol=bound, atol=bound * np.abs(b[np.isfinite(b)]).max(initial=1), equal_nan=True)
               for a, b in pairs)


def attempt(compute):
    try:
        return compute()
    except Exception as error:
        return error


def check_more(case):
    """What is wrong with the derivatives or vmap of a case, or None."""
    expected = attempt(lambda: derivatives(jax, theirs, case))
    if not isinstance(expected, Exception):
        got = attempt(lambda: derivatives(aot, ours, case))
        if isinstance(got, Exception):
            return f"derivative raises {got!r:.300}"
        if not close(got, expected, case.tolerance):
            return "derivative differs"
    pair = attempt(lambda: batched(case))
    if isinstance(pair, aot.errors.ConcretizationTypeError):
        return None  # the shape of the result depends on values
    if isinstance(pair, Exception):
        return None if isinstance(numpy_cases.call(ours, case, ours.asarray), Exception) else f"vmap raises {pair!r:.300}"
    return None if close(*pair, case.tolerance) else "vmap differs from a loop"


def trace_time(make_jaxpr, module, case, repeat: int = 40) -> float:
    """Microseconds to trace the call once more in a trace where it has been traced already."""
    fun = module
    for part in case.name.split("."):
        fun = getattr(fun, part)
    where = [i for i, a in enumerate(case.args) if isinstance(a, np.ndarray)]

    def many(*xs):
        args = [numpy_cases.given(a, module, lambda x: x) for a in case.args]
        for i, x in zip(where, xs):
            args[i] = x
        for _ in range(repeat):
            fun(*args, **case.kwargs)
        return 0

    xs = [module.asarray(case.args[i]) for i in where]
    best = float("inf")
    for k in range(4):
        start = time.perf_counter()
        make_jaxpr(lambda *xs: many(*xs))(*xs)
        best = min(best, time.perf_counter() - start) if k else best
    return best / repeat * 1e6


def trace(pattern: str = "") -> int:
    """Trace times of one case of each name, slowest ratio first; the exit code is 1 if one is above 1.2."""
    first: dict[str, numpy_cases.Case] = {}
    for case in numpy_cases.cases():
        if any(isinstance(a, np.ndarray) and a.ndim for a in case.args) and re.search(pattern, case.name):
            first.setdefault(case.name, case)
    rows = []
    for case in first.values():
        us = [attempt(lambda m=m, lib=lib, c=case: trace_time(lib.make_jaxpr, m, c)) for m, lib in ((ours, aot), (theirs, jax))]
        if not any(isinstance(u, Exception) for u in us):
            rows.append((us[0] / us[1], *us, case.name))
    for ratio, a, b, name in sorted(rows, reverse=True):
        print(f"{name:28s} {a:8.1f} us, jax {b:8.1f} us, ratio {ratio:.2f}")
    ratios = sorted(r[0] for r in rows)
    print(f"{len(rows)} functions: median ratio {ratios[len(ratios) // 2]:.2f}, worst {ratios[-1]:.2f}")
    return int(ratios[-1] > 1.2)


def main(pattern: str = "") -> int:
    """Run the table; the exit code is 1 if anything failed."""
    counts, failed, start = Counter(), Counter(), time.time()
    cases = [c for c in numpy_cases.cases() if re.search(pattern, c.name)]
    for n, case in enumerate(cases):
        got, expected = numpy_cases.call(ours, case, ours.asarray), numpy_cases.call(theirs, case, theirs.asarray)
        found = numpy_cases.difference(got, expected, case.tolerance, case.name not in numpy_cases.LOSES_WEAK_TYPE)
        if case.grad and not found:
            found = check_more(case)
        counts["fail" if found else "pass"] += 1
        if found:
            failed[case.name] += 1
            print(f"\r{case.name}{str(case.args)[:200]} {str(case.kwargs)[:100]}: {found}")
        if sys.stderr.isatty() or n % 200 == 0:
            print(f"\r{n + 1} / {len(cases)}, {counts['fail']} failed", end="", file=sys.stderr)
        if n % 1000 == 999:
            jax.clear_caches()      # the system has room for so many mapped programs only
            aot.clear_caches()
    print(f"\n{counts['pass']} passed, {counts['fail']} failed in {time.time() - start:.0f} s", dict(failed) or "")
    return int(bool(failed))


if __name__ == "__main__":
    wanted = [a for a in sys.argv[1:] if a != "--trace"]
    sys.exit((trace if "--trace" in sys.argv else main)(*wanted[:1]))
