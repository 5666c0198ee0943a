"""L-BFGS: J. Nocedal and S. Wright, Numerical Optimization, algorithms 7.4 and 7.5."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import aot.numpy as jnp
from aot import lax
from aot.api import value_and_grad
from aot.scipy.optimize._line_search import dot, line_search

Array = Any


def _direction(state: dict[str, Array], size: int) -> Array:
    """The two-loop recursion over the newest steps s and gradient changes y; unused entries have rho = 0."""
    def back(j, carry):
        q, alphas = carry
        i = size - 1 - j
        alpha = state["rho"][i] * jnp.real(dot(jnp.conj(state["s"][i]), q)).astype(state["rho"].dtype)
        return q - alpha * jnp.conj(state["y"][i]), alphas.at[i].set(alpha)
    q, alphas = lax.fori_loop(0, size, back, (-jnp.conj(state["g"]), jnp.zeros_like(state["rho"])))

    def forth(i, q):
        beta = state["rho"][i] * jnp.real(dot(state["y"][i], q)).astype(state["rho"].dtype)
        return q + (alphas[i] - beta) * state["s"][i]
    return lax.fori_loop(0, size, forth, state["gamma"] * q)


def minimize_lbfgs(fun: Callable, x0: Array, maxiter: float | None = None, norm: Any = np.inf, maxcor: int = 10,
                   ftol: float = 2.220446049250313e-09, gtol: float = 1e-05, maxfun: float | None = None,
                   maxgrad: float | None = None, maxls: int = 20) -> dict[str, Array]:
    """-> x, f, g, converged, failed, status (1 maxiter, 2 maxfun, 3 maxgrad, 4 ftol, 5 line search), k, nfev, ngev."""
    x0 = jnp.asarray(x0)
    if maxiter is None and maxfun is None and maxgrad is None:
        maxiter = x0.shape[0] * 200
    limits = [np.inf if v is None else v for v in (maxiter, maxfun, maxgrad)]
    f, g = value_and_grad(fun)(x0)
    push = lambda history, new: jnp.roll(history, -1, axis=0).at[-1].set(new)

    def step(state):
        direction = _direction(state, maxcor)
        found = line_search(fun, state["x"], direction, state["f"], state["g"], maxiter=maxls)
        s = found["a_star"].astype(direction.dtype) * direction
        y = found["g_star"] - state["g"]
        sy = jnp.real(dot(y, s))
        converged = jnp.linalg.norm(found["g_star"], ord=norm) < gtol
        status = jnp.where(state["f"] - found["phi_star"] < ftol, 4, 0)
        for value, limit, code in ((state["ngev"], limits[2], 3), (state["nfev"], limits[1], 2), (state["k"], limits[0], 1)):
            status = jnp.where(value >= limit, code, status)
        status = jnp.where(found["failed"], 5, status)
        return {"x": (state["x"] + s).astype(x0.dtype), "f": found["phi_star"].astype(f.dtype),
                "g": found["g_star"].astype(g.dtype), "s": push(state["s"], s), "y": push(state["y"], y),
                "rho": push(state["rho"], (1 / sy).astype(x0.dtype)),
                "gamma": (sy / jnp.real(dot(jnp.conj(y), y))).astype(g.dtype), "converged": converged,
                "failed": (status > 0) & ~converged, "status": jnp.where(converged, 0, status), "k": state["k"] + 1,
                "nfev": state["nfev"] + found["nfev"], "ngev": state["ngev"] + found["ngev"]}
    history = jnp.zeros((maxcor, x0.shape[0]), x0.dtype)
    init = {"x": x0, "f": f, "g": g, "s": history, "y": history, "rho": jnp.zeros(maxcor, x0.dtype),
            "gamma": jnp.ones((), g.dtype), "converged": jnp.array(False), "failed": jnp.array(False),
            "status": jnp.array(0), "k": 0, "nfev": 1, "ngev": 1}
    return lax.while_loop(lambda s: ~s["converged"] & ~s["failed"], step, init)
