"""minimize: BFGS, and L-BFGS."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from aot.scipy.optimize._bfgs import minimize_bfgs
from aot.scipy.optimize._lbfgs import minimize_lbfgs

Array = Any


class OptimizeResults(NamedTuple):
    """What minimize found.

    status: 0 converged, 1 maxiter reached, 3 zoom of the line search failed, 5 its maxiter reached, -1 undefined.
    jac: gradient at x.  hess_inv: estimate of the inverse Hessian.  nfev, njev, nit: evaluations of the function, of its
    gradient, iterations."""
    x: Array
    success: Array
    status: Array
    fun: Array
    jac: Array
    hess_inv: Array | None
    nfev: Array
    njev: Array
    nit: Array


def minimize(fun: Callable, x0: Array, args: tuple = (), *, method: str, tol: float | None = None,
             options: Mapping[str, Any] | None = None) -> OptimizeResults:
    """A local minimum of fun(x, *args) from x0, shape (n,); can be jitted and mapped, not differentiated in reverse.

    method: "BFGS".  options for it: maxiter (200 n), norm (inf) and gtol (1e-5): ends when norm(gradient, norm) < gtol;
    line_search_maxiter (10).  tol is not used."""
    if not isinstance(args, tuple):
        raise TypeError(f"args argument to jax.scipy.optimize.minimize must be a tuple, got {args}")
    methods = {"bfgs": minimize_bfgs, "l-bfgs-experimental-do-not-rely-on-this": minimize_lbfgs}
    if method.lower() not in methods:
        raise ValueError(f"Method {method} not recognized; hint: BFGS")
    found = methods[method.lower()](lambda x: fun(x, *args), x0, **(options or {}))
    return OptimizeResults(found["x"], found["converged"] & ~found["failed"], found["status"], found["f"], found["g"],
                           found.get("H"), found["nfev"], found["ngev"], found["k"])
