"""Differential testing: one function of a module (aot or jax) and its lax, run over both and compared."""
from __future__ import annotations

import importlib
from typing import Any, Callable

import numpy as np
import pytest

import aot
import aot.lax


class _Absent:
    """Stands for jax in environments with a jaxlib that jax 0.10.2 does not run on: tests that ask it are skipped."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        pytest.skip("compares with jax, which is not installed", allow_module_level=True)

    def __bool__(self) -> bool: return False


try:
    jax: Any = importlib.import_module("jax")
except ImportError:
    jax = _Absent()


def outcome(call: Callable, module, lax, args) -> Any:
    try:
        return call(module, lax)(*args)
    except Exception as err:
        return err


def wide(x) -> np.ndarray:
    """Any array as complex128, int64 or its own dtype, for comparison."""
    x = np.asarray(x)
    if x.dtype.kind in "biu":
        return x
    return x.astype(np.complex128) if x.dtype.kind in "fcV" else x


def same(ours, theirs, rtol: float, atol: float) -> str | None:
    """None when equal in value, shape, dtype and weak type; otherwise what differs."""
    a, b = aot.tree_util.tree_leaves(ours), jax.tree_util.tree_leaves(theirs)
    if len(a) != len(b):
        return f"{len(a)} results, jax has {len(b)}"
    for i, (x, y) in enumerate(zip(a, b)):
        shape, dtype = np.shape(x), np.asarray(x).dtype
        if shape != np.shape(y):
            return f"result {i}: shape {shape}, jax has {np.shape(y)}"
        if dtype != np.asarray(y).dtype:
            return f"result {i}: dtype {dtype}, jax has {np.asarray(y).dtype}"
        weak = getattr(x, "weak_type", False), getattr(y, "weak_type", False)
        if weak[0] != weak[1]:
            return f"result {i}: weak_type {weak[0]}, jax has {weak[1]}"
        if not np.allclose(wide(x), wide(y), rtol=rtol, atol=atol, equal_nan=True):
            return f"result {i}: {np.ravel(x)[:6]}, jax has {np.ravel(y)[:6]}"
    return None


def compare(call: Callable, *args, rtol: float = 1e-4, atol: float = 1e-5) -> None:
    """call(module, lax) -> a function of args; the results over aot and jax must agree (or both raise)."""
    theirs = outcome(call, jax, jax.lax, args)
    ours = outcome(call, aot, aot.lax, args)
    if isinstance(theirs, Exception):
        assert isinstance(ours, Exception), f"jax raises {type(theirs).__name__}: {theirs}; aot returned {ours}"
        return
    if isinstance(ours, Exception):
        raise ours
    difference = same(ours, theirs, rtol, atol)
    assert difference is None, difference


def total(lax, v):
    return lax.reduce_sum(v, tuple(range(v.ndim)))


def table(*rows):
    """pytest parametrisation of (name, call, *args) rows; a call is a function of (module, lax)."""
    return pytest.mark.parametrize("call, args", [pytest.param(r[1], r[2:], id=r[0]) for r in rows])
