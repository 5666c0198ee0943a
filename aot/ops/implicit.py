"""Solutions defined by equations: `custom_linear_solve` and `custom_root`, differentiated by the implicit function
theorem, so that how the solver finds the solution does not matter."""
from __future__ import annotations

from typing import Any, Callable

from aot.ops.call import Holder, spread
from aot.ops.control import instantiate, nonzero_dots, split
from aot.ops.loops import avals_of, stage_tree
from aot.source import api_boundary
from aot.trace import Jaxpr, Zero, bind, eval_jaxpr, is_linear, tangent_aval, typeof
from aot.tree_util import tree_flatten, tree_map, tree_structure

_NAMES = ("matvec", "vecmat", "solve", "transpose_solve")


class LinearSolve(Holder):
    """x with matvec(x) = b: (consts of each jaxpr, b) -> (x, auxiliary outputs).

    jaxprs: four of (consts ++ vector -> vector), in the order of _NAMES; vecmat and transpose_solve may be None.
    The solvers' consts have no influence on x, hence no tangents."""
    name = "custom_linear_solve"

    def infer(self, *avals, jaxprs, counts): return jaxprs[2].out_avals
    def effects(self, *, jaxprs, counts): return jaxprs[2].effects

    def shown(self, params):
        return {"jaxprs": {n: j for n, j in zip(_NAMES, params["jaxprs"]) if j is not None}, "counts": params["counts"]}

    def jvp(self, primals, tangents, *, jaxprs, counts):
        """A dx = db - dA x, with the same solver."""
        from aot.transforms.jvp import add_tangents
        outs = self.bind(*primals, jaxprs=jaxprs, counts=counts)
        *consts, _ = split(primals, *counts)
        const_dots, *_, db = split(tangents, *counts)
        n = len(db)
        dA_x = _along_consts(jaxprs[0], consts[0], outs[:n], const_dots)
        rhs = [add_tangents(t, _negative(u)) for t, u in zip(db, dA_x)]
        if all(type(t) is Zero for t in rhs):
            return outs, [Zero(tangent_aval(typeof(o))) for o in outs]
        dots = self.bind(*[c for cs in consts for c in cs], *map(instantiate, rhs), jaxprs=jaxprs, counts=counts)
        return outs, [*dots[:n], *[Zero(tangent_aval(typeof(o))) for o in outs[n:]]]

    linearize = jvp

    def transpose(self, cts, *args, jaxprs, counts):
        """A^T b' = x': matrix and solver change places with their transposes."""
        *consts, b = split(args, *counts)
        if any(is_linear(c) for cs in consts for c in cs) or jaxprs[3] is None:
            raise TypeError("transpose_solve required for backwards mode automatic differentiation of "
                            "custom_linear_solve. hint: pass transpose_solve, or symmetric=True if matvec is")
        order = (1, 0, 3, 2)
        back = self.bind(*[c for i in order for c in consts[i]], *map(instantiate, cts[:len(b)]),
                         jaxprs=tuple(jaxprs[i] for i in order), counts=tuple(counts[i] for i in order))
        return [*[None] * sum(counts), *back[:len(b)]]

    def vmap(self, axis, args, dims, *, jaxprs, counts):
        from aot.transforms.vmap import batch_jaxpr, to_dim
        values = [x if d is None else to_dim(axis, x, d, 0) for x, d in zip(args, dims)]
        at = [None if d is None else 0 for d in dims]
        *consts, b = split(values, *counts)
        *const_dims, b_dims = split(at, *counts)
        b = [to_dim(axis, x, d, 0) for x, d in zip(b, b_dims)]
        batched = tuple(j if j is None else batch_jaxpr(j, axis, [*cd, *[0] * len(b)], [True] * len(j.outvars))[0]
                        for j, cd in zip(jaxprs, const_dims))
        outs = self.bind(*[c for cs in consts for c in cs], *b, jaxprs=batched, counts=counts)
        return outs, [0] * len(outs)

    def lower(self, e, ins, outs, *xs, jaxprs, counts):
        *consts, b = split(xs, *counts)
        return e.jaxpr(jaxprs[2], [*consts[2], *b])


linear_solve_p = LinearSolve()


def _negative(t):
    from aot.ops.elementwise import neg
    return t if type(t) is Zero else neg(t)


def _along_consts(jaxpr: Jaxpr, consts, x, const_dots) -> list:
    """Tangents of jaxpr(consts, x) when only the consts move; primal and tangent work bound separately."""
    from aot.transforms.linearize import linearize_jaxpr
    nonzero = nonzero_dots(const_dots)
    if not any(nonzero):
        return [Zero(tangent_aval(typeof(v))) for v in jaxpr.out_avals]
    lin = linearize_jaxpr(jaxpr, nonzero + [False] * len(x))
    outs = eval_jaxpr(lin.fwd, [*consts, *x])
    dots = eval_jaxpr(lin.lin, [*lin.pick([*consts, *x], outs), *[t for t, nz in zip(const_dots, nonzero) if nz]])
    return spread(dots, lin.out_nonzero, jaxpr.out_avals)


def _check_same(what: str, got_tree, got, tree, avals) -> None:
    if got_tree != tree:
        raise TypeError(f"{what} must return a tree like its input: expected {tree}, got {got_tree}.")
    for g, a in zip(got, avals):
        if (g.shape, g.dtype) != (a.shape, a.dtype):
            raise ValueError(f"{what} must return arrays like its input: expected {a.str_short(False)}, got "
                             f"{g.str_short(False)}.")


@api_boundary
def custom_linear_solve(matvec: Callable, b: Any, solve: Callable, transpose_solve: Callable | None = None,
                        symmetric: bool = False, has_aux: bool = False):
    """x with matvec(x) = b, found by solve(matvec, b) and differentiated implicitly.

    matvec: linear, tree -> tree like b.  solve(matvec, b) -> x, or (x, aux) with has_aux.  Reverse mode needs
    transpose_solve(vecmat, b), where vecmat is the transpose of matvec, or symmetric=True."""
    if transpose_solve is None and symmetric:
        transpose_solve = solve
    leaves, tree, avals = avals_of(b)
    in_tree = tree_structure((b,))

    def staged(fun, name, aux=False):
        jaxpr, captured, out_tree = stage_tree(fun, in_tree, avals, f"custom_linear_solve's {name}")[:3]
        main = out_tree.children()[0] if aux else out_tree
        _check_same(name, main, jaxpr.out_avals[:len(leaves)], tree, avals)
        return jaxpr, captured, out_tree
    forward = staged(matvec, "matvec")
    solver = staged(lambda v: solve(matvec, v), "solve", has_aux)
    back, back_solver = (None, [], None), (None, [], None)
    if transpose_solve is not None:
        vecmat = matvec if symmetric else lambda v: linear_transpose_of(matvec, b)(v)
        back = forward if symmetric else staged(vecmat, "vecmat")
        back_solver = staged(lambda v: transpose_solve(vecmat, v), "transpose_solve", has_aux)
    parts = (forward, back, solver, back_solver)
    outs = bind(linear_solve_p, *[c for _, captured, _ in parts for c in captured], *leaves,
                jaxprs=tuple(j for j, _, _ in parts), counts=tuple(len(c) for _, c, _ in parts))
    return solver[2].unflatten(outs)


def linear_transpose_of(fun: Callable, like: Any) -> Callable:
    """The transpose of a linear function of a tree like `like`."""
    from aot.trace import ShapeDtypeStruct
    from aot.transforms.autodiff import linear_transpose
    spec = tree_map(lambda x: ShapeDtypeStruct(typeof(x).shape, typeof(x).dtype), like)
    back = linear_transpose(fun, spec)
    return lambda ct: back(ct)[0]


@api_boundary
def custom_root(f: Callable, initial_guess: Any, solve: Callable, tangent_solve: Callable, has_aux: bool = False):
    """x with f(x) = 0, found by solve(f, initial_guess) and differentiated implicitly in what f closes over.

    solve -> x, or (x, aux) with has_aux.  tangent_solve(g, y) -> v with g(v) = y for the linear function g (f
    linearized at the root); linear in y, for reverse mode."""
    from aot.custom import custom_jvp
    _, tree, avals = avals_of(initial_guess)
    in_tree = tree_structure((initial_guess,))
    f_jaxpr, f_consts, f_tree = stage_tree(f, in_tree, avals, "custom_root's f")[:3]
    _check_same("f", f_tree, f_jaxpr.out_avals, tree, avals)
    s_jaxpr, s_consts, s_tree = stage_tree(lambda x: solve(f, x), in_tree, avals, "custom_root's solve")[:3]
    n = len(avals)
    _check_same("solve", s_tree.children()[0] if has_aux else s_tree, s_jaxpr.out_avals[:n], tree, avals)

    @custom_jvp
    def root(f_consts, s_consts, guess) -> Any:
        return eval_jaxpr(s_jaxpr, [*s_consts, *guess])

    def rule(primals, tangents):
        consts = primals[0]
        outs: Any = root(*primals)
        x = outs[:n]
        moved = [_negative(instantiate(t)) for t in _along_consts(f_jaxpr, consts, x, tangents[0])]
        linear = _linear_in_x(f_jaxpr, consts, x, tree)
        dots = tree_flatten(tangent_solve(linear, tree.unflatten(moved)))[0]
        return outs, [*dots, *[instantiate(Zero(tangent_aval(typeof(o)))) for o in outs[n:]]]
    root.defjvp(rule)
    return s_tree.unflatten(root(list(f_consts), list(s_consts), tree_flatten(initial_guess)[0]))


def _linear_in_x(jaxpr: Jaxpr, consts, x, tree) -> Callable:
    """v -> derivative of jaxpr(consts, x) in x along v."""
    from aot.transforms.linearize import linearize_jaxpr
    lin = linearize_jaxpr(jaxpr, [False] * len(consts) + nonzero_dots(x))
    residuals = lin.pick([*consts, *x], eval_jaxpr(lin.fwd, [*consts, *x]))

    def linear(v):
        dots = eval_jaxpr(lin.lin, [*residuals, *tree_flatten(v)[0]])
        return tree.unflatten(map(instantiate, spread(dots, lin.out_nonzero, jaxpr.out_avals)))
    return linear
