"""BFGS: J. Nocedal and S. Wright, Numerical Optimization, algorithm 6.1."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import aot.numpy as jnp
from aot import lax
from aot.api import value_and_grad
from aot.scipy.optimize._line_search import dot, line_search

Array = Any


def _updated(H: Array, s: Array, y: Array) -> Array:
    """The inverse Hessian after a step s that changed the gradient by y; unchanged where that says nothing."""
    rho = 1 / dot(y, s)
    w = jnp.eye(s.shape[0], dtype=rho.dtype) - rho * s[:, None] * y[None, :]
    new = jnp.einsum("ij,jk,lk", w, H, w, precision=lax.Precision.HIGHEST) + rho * s[:, None] * s[None, :]
    return jnp.where(jnp.isfinite(rho), new, H)


def minimize_bfgs(fun: Callable, x0: Array, maxiter: int | None = None, norm: Any = np.inf, gtol: float = 1e-5,
                  line_search_maxiter: int = 10) -> dict[str, Array]:
    """-> x, f, g, H, converged, failed, status, k, nfev, ngev; see minimize."""
    maxiter = np.size(x0) * 200 if maxiter is None else maxiter
    x0 = jnp.asarray(x0)
    f, g = value_and_grad(fun)(x0)
    small = lambda g: jnp.linalg.norm(g, ord=norm) < gtol

    def step(state):
        direction = -dot(state["H"], state["g"])
        found = line_search(fun, state["x"], direction, state["f"], state["g"], state["before"],
                            maxiter=line_search_maxiter)
        s = found["a_star"] * direction
        return {"x": state["x"] + s, "f": found["phi_star"], "g": found["g_star"],
                "H": _updated(state["H"], s, found["g_star"] - state["g"]), "before": state["f"],
                "converged": small(found["g_star"]), "failed": found["failed"], "k": state["k"] + 1,
                "nfev": state["nfev"] + found["nfev"], "ngev": state["ngev"] + found["ngev"], "ls": found["status"]}
    init = {"x": x0, "f": f, "g": g, "H": jnp.eye(x0.shape[0], dtype=x0.dtype), "before": f + jnp.linalg.norm(g) / 2,
            "converged": small(g), "failed": jnp.array(False), "k": 0, "nfev": 1, "ngev": 1, "ls": jnp.array(0)}
    going = lambda s: ~s["converged"] & ~s["failed"] & (s["k"] < maxiter)
    out = lax.while_loop(going, step, init)
    status = jnp.where(out["k"] == maxiter, 1, jnp.where(out["failed"], 2 + out["ls"], -1))
    return {**out, "status": jnp.where(out["converged"], 0, status)}
