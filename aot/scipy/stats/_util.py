"""What the distributions share."""
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import aot.numpy as jnp
from aot import lax
from aot.scipy._util import fused, inexact

Array = Any


def standardize(name: str, x: Array, *args: Array) -> list[Array]:
    """(x, shape parameters .., loc, scale) of one dtype -> [(x - loc) / scale, shape parameters .., scale]."""
    x, *shapes, loc, scale = inexact(name, x, *args)
    return [lax.div(lax.sub(x, loc), scale), *shapes, scale]


def _made_of(f: Callable, g: Callable, name: str, doc: str) -> Callable:
    @functools.wraps(f)
    def call(*args, **kwargs):
        return g(f(*args, **kwargs))
    call.__name__ = call.__qualname__ = name
    call.__doc__ = doc
    return call


def exponential(f: Callable, name: str, doc: str) -> Callable:
    """exp(f(..)) with f's parameters."""
    return _made_of(f, lax.exp, name, doc)


def logarithm(f: Callable, name: str, doc: str) -> Callable:
    """log(f(..)) with f's parameters."""
    return _made_of(f, lax.log, name, doc)


def density(logpdf: Callable) -> Callable:
    """The density of a log density."""
    return exponential(logpdf, "pdf", "Probability density.")


def mass(logpmf: Callable) -> Callable:
    """The probabilities of log probabilities."""
    return exponential(logpmf, "pmf", "Probability.")


def mirrored(f: Callable, name: str, doc: str) -> Callable:
    """f(-x, -loc, scale): the upper tail of a symmetric distribution by its lower one."""
    @fused()
    def call(x, loc=0, scale=1):
        x, loc, scale = inexact(name, x, loc, scale)
        return f(-x, -loc, scale)
    call.__name__ = call.__qualname__ = name
    call.__doc__ = doc
    return call


def unit(q: Array) -> Array:
    """Whether q is a probability."""
    return ~(jnp.isnan(q) | (q < 0) | (q > 1))
