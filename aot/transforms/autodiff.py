"""The user-facing derivatives: jvp, linearize, vjp, grad, jacobians and hessian, over pytrees."""
from __future__ import annotations

import operator
from typing import Any, Callable, Sequence

import numpy as np

from aot import dtypes
from aot.array import asarray
from aot.ops.families import kind
from aot.source import api_boundary, wraps
from aot.trace import Linear, Zero, eval_jaxpr, tangent_aval, typeof
from aot.trace.refs import is_ref
from aot.transforms.jvp import instantiate_zero, jvp_flat
from aot.transforms.linearize import linearize_flat, transpose_flat
from aot.tree_util import Partial, register_pytree_node, tree_flatten, tree_map, tree_structure


def flat_function(fun: Callable, in_tree, has_aux: bool = False):
    """fun over pytrees -> (function of leaves returning a list of leaves, a dict that receives out_tree and aux)."""
    box: dict[str, Any] = {}

    def flat(*leaves):
        out = fun(*in_tree.unflatten(leaves))
        if has_aux:
            if not isinstance(out, (tuple, list)) or len(out) != 2:
                raise TypeError(f"has_aux=True: the function must return a pair (output, aux), got {type(out)}")
            out, box["aux"] = out
        leaves, box["out_tree"] = tree_flatten(out)
        for x in leaves:
            check_value(x, "the function returned a value")
        return leaves
    return flat, box


def refuse_refs(xs: Sequence, what: str) -> None:
    """TypeError where something is to be differentiated backwards with respect to a reference."""
    for x in xs:
        if is_ref(x):
            raise TypeError(f"{what} cannot differentiate with respect to a reference, of type {x.aval}. hint: differentiate "
                            "with respect to an array, and make the reference in the function, or close over it")


def check_value(x: Any, what: str) -> None:
    try:
        typeof(x)
    except TypeError:
        raise TypeError(f"{what} of type {type(x)}, which is not an array. hint: differentiate only with respect to "
                        "arrays and numbers, and return only those") from None


def strip_aux(aux: Any, unwrap: Callable) -> Any:
    """Tracers of a finished trace in aux -> their primal values."""
    return tree_map(unwrap, aux)


def _primal(x):
    from aot.transforms.jvp import JVPTracer
    while type(x) is JVPTracer and not _live(x):
        x = x.primal
    return x


def _live(x):
    from aot.trace import is_live
    return is_live(x.owner)


def _result(t: Any) -> Any:
    """A tangent or cotangent as an array, as the user receives it."""
    t = instantiate_zero(t)
    return t if hasattr(t, "aval") or typeof(t).dtype == dtypes.float0 else asarray(t)


# ---- forward mode ------------------------------------------------------------------------------------------------

@api_boundary
def jvp(fun: Callable, primals: Sequence, tangents: Sequence, has_aux: bool = False):
    """(fun(*primals), directional derivative along tangents[, aux]).  primals and tangents: tuples of equal trees."""
    if not isinstance(primals, (tuple, list)) or not isinstance(tangents, (tuple, list)):
        raise TypeError("primal and tangent arguments to jvp must be tuples or lists; found "
                        f"{type(primals).__name__} and {type(tangents).__name__}.")
    xs, tree = tree_flatten(tuple(primals))
    ts, t_tree = tree_flatten(tuple(tangents))
    if tree != t_tree:
        raise TypeError("primal and tangent arguments to jvp must have the same tree structure; primals have tree "
                        f"structure {tree} whereas tangents have tree structure {t_tree}.")
    for x, t in zip(xs, ts):
        _check_tangent(x, t)
    flat, box = flat_function(fun, tree, has_aux)
    outs, dots = jvp_flat(flat, xs, ts)
    out = box["out_tree"].unflatten(outs), box["out_tree"].unflatten(map(_result, dots))
    return (*out, strip_aux(box["aux"], _primal)) if has_aux else out


def _check_tangent(x, t) -> None:
    if is_ref(x):
        a = x.aval.inner_aval
        if not is_ref(t) or t.aval.inner_aval.strip_weak_type() != a.strip_weak_type() or tangent_aval(a) != a:
            raise TypeError(f"the tangent of a reference of type {x.aval} is a reference to floats of the same type, got {t!r}")
        return
    want, got = tangent_aval(typeof(x)), typeof(t)
    if want.dtype != got.dtype:
        raise TypeError("primal and tangent arguments to jvp do not match; dtypes must be equal, or in case of int/bool "
                        f"primal dtype the tangent dtype must be float0. Got primal dtype {typeof(x).dtype.name} and so "
                        f"expected tangent dtype {want.dtype.name}, but got tangent dtype {got.dtype.name} instead.")
    if want.shape != got.shape:
        raise ValueError("jvp called with different primal and tangent shapes; "
                         f"got primal shape {want.shape} and tangent shape as {got.shape}")


@api_boundary
def linearize(fun: Callable, *primals, has_aux: bool = False):
    """(fun(*primals), function from tangents to the directional derivative[, aux])."""
    xs, tree = tree_flatten(primals)
    refuse_refs(xs, "linearize")
    for x in xs:
        check_value(x, "linearize was given an argument")
    flat, box = flat_function(fun, tree, has_aux)
    outs, jaxpr, residuals, out_nonzero = linearize_flat(flat, xs)
    out_tree, in_avals, out_avals = box["out_tree"], list(map(typeof, xs)), [tangent_aval(typeof(x)) for x in outs]

    def f_jvp(residuals, *tangents):
        ts, t_tree = tree_flatten(tangents)
        if t_tree != tree:
            raise TypeError(f"linearized function called with tangents of structure {t_tree}, but its inputs have "
                            f"structure {tree}")
        for a, t in zip(in_avals, ts):
            _check_tangent(a, t)
        active = [t for a, t in zip(in_avals, ts) if tangent_aval(a).dtype != dtypes.float0]
        dots = iter(eval_jaxpr(jaxpr, [*residuals, *active]))
        return out_tree.unflatten([_result(next(dots) if nz else Zero(a))
                                   for nz, a in zip(out_nonzero, out_avals)])
    out = out_tree.unflatten(outs), Partial(f_jvp, residuals)
    return (*out, strip_aux(box["aux"], _primal)) if has_aux else out


# ---- reverse mode ------------------------------------------------------------------------------------------------

class Pullback:
    """The function that `vjp` returns: cotangents of the output -> tuple of cotangents of the arguments."""

    def __init__(self, jaxpr, residuals, xs, in_tree, outs, out_nonzero, out_tree):
        self.jaxpr, self.residuals, self.in_tree = jaxpr, residuals, in_tree
        self.out_nonzero, self.out_tree = out_nonzero, out_tree
        self.in_avals, self.out_avals = [typeof(x) for x in xs], [typeof(x) for x in outs]

    def flat(self, cts: Sequence) -> list:
        dots = [Linear(tangent_aval(a)) for a in self.in_avals if tangent_aval(a).dtype != dtypes.float0]
        grads = iter(transpose_flat(self.jaxpr, [*self.residuals, *dots],
                                    [c for c, nz in zip(cts, self.out_nonzero) if nz]))
        return [_result(next(grads)) if tangent_aval(a).dtype != dtypes.float0
                else np.zeros(a.shape, dtypes.float0) for a in self.in_avals]

    def __call__(self, ct):
        cts, tree = tree_flatten(ct)
        if tree != self.out_tree:
            raise ValueError(f"unexpected tree structure of argument to vjp function: got {tree}, but expected to "
                             f"match {self.out_tree}")
        for c, a in zip(cts, self.out_avals):
            want, got = tangent_aval(a), typeof(c)
            if want.shape != got.shape or want.dtype not in (got.dtype, dtypes.float0):     # integers have no use for theirs
                raise ValueError(f"unexpected JAX type (e.g. shape/dtype) for argument to VJP function: got "
                                 f"{got.str_short(False)}, but expected {want.str_short(False)} because the "
                                 f"corresponding output of the differentiated function had JAX type "
                                 f"{a.str_short(False)}")
        return self.in_tree.unflatten(self.flat(cts))

    def with_refs(self, *wanted: Any) -> Callable:
        """The same function, saying for each array among the arguments of the function what to do with its gradient.

        A reference: the gradient is added to it, and is a GradRef() in the result.  ad.GradValue(): it is returned.
        ad.DontWant(): it is a DidntWant() in the result.  Raises ValueError for another structure, TypeError for others."""
        places, tree = tree_flatten(wanted)
        if tree != self.in_tree:
            raise ValueError(f"with_refs got {tree}, but the arguments of the differentiated function have the structure "
                             f"{self.in_tree}. hint: one reference, GradValue() or DontWant() for each array")

        def pullback(ct: Any) -> Any:
            return tree.unflatten(map(_deliver, places, tree_flatten(self(ct))[0]))
        return pullback


def _deliver(place: Any, grad: Any) -> Any:
    from aot.ad import DidntWant, DontWant, GradRef, GradValue
    from aot.ops.refs import increase
    from aot.ops.views import view_of
    if isinstance(place, (GradValue, DontWant)):
        return grad if isinstance(place, GradValue) else DidntWant()
    view = view_of(place, "with_refs, in place of GradValue() or DontWant(),")
    if typeof(grad).dtype != dtypes.float0:
        increase(view, grad)
    return GradRef()


def _flatten_pullback(p: Pullback):
    """A pullback may cross jit: its residuals are arrays, the rest is static."""
    return list(p.residuals), (p.jaxpr, p.in_tree, tuple(p.out_nonzero), p.out_tree, tuple(p.in_avals), tuple(p.out_avals))


def _unflatten_pullback(static, residuals):
    p = object.__new__(Pullback)
    p.jaxpr, p.in_tree, p.out_nonzero, p.out_tree, p.in_avals, p.out_avals = static
    p.residuals = list(residuals)
    return p


register_pytree_node(Pullback, _flatten_pullback, _unflatten_pullback)


@api_boundary
def vjp(fun: Callable, *primals, has_aux: bool = False, reduce_axes=()):
    """(fun(*primals), pullback from output cotangents to a tuple of input cotangents[, aux])."""
    _no_reduce_axes(reduce_axes)
    out, pullback, aux = _vjp(fun, primals, has_aux)
    return (out, pullback, aux) if has_aux else (out, pullback)


def _vjp(fun, primals, has_aux):
    xs, tree = tree_flatten(primals)
    refuse_refs(xs, "vjp")
    for x in xs:
        check_value(x, "vjp was given an argument")
    flat, box = flat_function(fun, tree, has_aux)
    outs, jaxpr, residuals, out_nonzero = linearize_flat(flat, xs)
    aux = strip_aux(box["aux"], _primal) if has_aux else None
    return (box["out_tree"].unflatten(outs),
            Pullback(jaxpr, residuals, xs, tree, outs, out_nonzero, box["out_tree"]), aux)


@api_boundary
def linear_transpose(fun: Callable, *primals, reduce_axes=()):
    """The transpose of a function that is linear in all its arguments (given by example or ShapeDtypeStruct)."""
    from aot.trace import stage
    _no_reduce_axes(reduce_axes)
    xs, tree = tree_flatten(primals)
    flat, box = flat_function(fun, tree)
    avals = [typeof(x) for x in xs]
    jaxpr, captured = stage(flat, avals)
    out_avals = jaxpr.out_avals

    def transposed(captured, ct):
        cts, ct_tree = tree_flatten(ct)
        if ct_tree != box["out_tree"]:
            raise TypeError(f"cotangent tree does not match function output, expected {box['out_tree']} but got {ct_tree}")
        for c, a in zip(cts, out_avals):
            if typeof(c).shape != a.shape or typeof(c).dtype != a.dtype:
                raise TypeError(f"cotangent type does not match function output, expected {a.str_short()} but got "
                                f"{typeof(c).str_short()}")
        grads = transpose_flat(jaxpr, [*captured, *map(Linear, avals)], cts)
        return tree.unflatten(map(_result, grads))
    return Partial(transposed, captured)


def value_and_grad(fun: Callable, argnums: int | Sequence[int] = 0, has_aux: bool = False, holomorphic: bool = False,
                   allow_int: bool = False, reduce_axes: Sequence = ()) -> Callable:
    """Function returning (fun(...), gradient with respect to argnums); ((value, aux), gradient) when has_aux."""
    _no_reduce_axes(reduce_axes)
    nums = _argnums(argnums)

    @wraps(fun)
    @api_boundary
    def value_and_grad_f(*args, **kwargs):
        f, dynamic = _partial(fun, args, kwargs, nums)
        for x in dynamic:
            for leaf in tree_flatten(x)[0]:
                _check_grad_input(leaf, holomorphic, allow_int)
        out, pullback, aux = _vjp(f, dynamic, has_aux)
        _check_scalar(out, holomorphic)
        from aot.ops.shape import full_like
        leaf, = tree_flatten(out)[0]
        grads = pullback.in_tree.unflatten(pullback.flat([full_like(leaf, 1)]))
        value = (out, aux) if has_aux else out
        return value, grads[0] if isinstance(argnums, int) else grads
    value_and_grad_f.__name__ = f"value_and_grad({getattr(fun, '__name__', 'fun')})"
    return value_and_grad_f


def grad(fun: Callable, argnums: int | Sequence[int] = 0, has_aux: bool = False, holomorphic: bool = False,
         allow_int: bool = False, reduce_axes: Sequence = ()) -> Callable:
    """Function returning the gradient of the scalar fun with respect to argnums ((gradient, aux) when has_aux)."""
    both = value_and_grad(fun, argnums, has_aux, holomorphic, allow_int, reduce_axes)

    @wraps(fun)
    @api_boundary
    def grad_f(*args, **kwargs):
        value, g = both(*args, **kwargs)
        return (g, value[1]) if has_aux else g
    return grad_f


def _no_reduce_axes(reduce_axes: Sequence) -> None:
    if reduce_axes:
        raise NotImplementedError(f"reduce_axes={reduce_axes!r} is not supported, nor is it in jax any more. hint: sum the "
                                  "gradient over these axes with lax.psum")


def _argnums(argnums) -> tuple[int, ...]:
    try:
        return (operator.index(argnums),) if not isinstance(argnums, (tuple, list)) else tuple(map(operator.index, argnums))
    except TypeError:
        raise TypeError(f"argnums must be an int or a sequence of ints, got {argnums!r}") from None


def _partial(fun, args, kwargs, nums):
    """fun with all but the positions `nums` fixed -> (function of those, their values)."""
    n = len(args)
    for i in nums:
        if not -n <= i < n:
            raise TypeError(f"differentiating with respect to argnums={i} requires at least {i + 1 if i >= 0 else -i} "
                            f"positional arguments to be passed by the caller, but got only {n} positional arguments.")
    where = [i % n for i in nums]
    if len(set(where)) < len(where):
        raise ValueError(f"argnums={nums} names an argument twice")

    def f(*dynamic):
        full = list(args)
        for i, x in zip(where, dynamic):
            full[i] = x
        return fun(*full, **kwargs)
    return f, tuple(args[i] for i in where)


def _check_grad_input(x, holomorphic: bool, allow_int: bool) -> None:
    refuse_refs([x], "grad")
    check_value(x, "grad was given an argument")
    k = kind(typeof(x).dtype)
    name = typeof(x).dtype.name
    if holomorphic:
        if k != "c":
            raise TypeError(f"grad with holomorphic=True requires inputs with complex dtype, but got {name}.")
    elif k not in "fc" and not allow_int:
        raise TypeError(f"grad requires real- or complex-valued inputs (input dtype that is a sub-dtype of np.inexact), "
                        f"but got {name}. If you want to use Boolean- or integer-valued inputs, use vjp or set "
                        "allow_int to True.")


def _check_scalar(out, holomorphic: bool) -> None:
    leaves, tree = tree_flatten(out)
    if len(leaves) != 1 or tree != tree_structure(0):
        raise TypeError(f"Gradient only defined for scalar-output functions. Output was {out}.")
    a = typeof(leaves[0])
    if a.shape:
        raise TypeError(f"Gradient only defined for scalar-output functions. Output had shape: {a.shape}.")
    if holomorphic and kind(a.dtype) != "c":
        raise TypeError(f"grad with holomorphic=True requires outputs with complex dtype, but got {a.dtype.name}.")
    if not holomorphic and kind(a.dtype) != "f":
        raise TypeError("grad requires real-valued outputs (output dtype that is a sub-dtype of np.floating), but got "
                        f"{a.dtype.name}. For holomorphic differentiation, pass holomorphic=True; for other complex or "
                        "integer outputs use vjp directly.")


# ---- jacobians ---------------------------------------------------------------------------------------------------

def _basis(leaves: Sequence) -> list:
    """For each leaf, an array of shape (total size, *leaf shape): the standard basis cut along the leaves."""
    from aot.ops.elementwise import convert
    from aot.ops.families import exact
    sizes = [typeof(x).size for x in leaves]
    total, at, out = sum(sizes), 0, []
    for x, n in zip(leaves, sizes):
        a = typeof(x)
        rows = np.zeros((total, n), dtype=a.dtype)
        rows[np.arange(at, at + n), np.arange(n)] = 1
        rows = exact(rows.reshape(total, *a.shape))
        out.append(convert(rows, a.dtype, True) if a.weak_type else rows)
        at += n
    return out


def _cut(x, leaves: Sequence, axis: int) -> list:
    """The inverse of `_basis` along one axis of x -> one piece for each leaf."""
    from aot.ops.shape import reshape
    from aot.ops.slicing import slice_in_dim
    at, out, shape = 0, [], typeof(x).shape
    if typeof(x).dtype == dtypes.float0:
        return [np.zeros((*shape[:axis], *typeof(leaf).shape, *shape[axis + 1:]), dtypes.float0) for leaf in leaves]
    for leaf in leaves:
        a = typeof(leaf)
        piece = slice_in_dim(x, at, at + a.size, axis=axis)
        out.append(reshape(piece, (*shape[:axis], *a.shape, *shape[axis + 1:])))
        at += a.size
    return out


def jacfwd(fun: Callable, argnums: int | Sequence[int] = 0, has_aux: bool = False, holomorphic: bool = False) -> Callable:
    """Jacobian by forward mode, one pass for each input element (all in one vmap): for each output leaf, a tree like
    the argument with leaves of shape (*output shape, *input shape)."""
    nums = _argnums(argnums)

    @wraps(fun)
    @api_boundary
    def jacfun(*args, **kwargs):
        from aot.transforms.batching import vmap
        f, dynamic = _partial(fun, args, kwargs, nums)
        dynamic = dynamic if not isinstance(argnums, int) else dynamic[0]
        g = f if not isinstance(argnums, int) else lambda x: f(x)
        xs, tree = tree_flatten(dynamic)
        for x in xs:
            _check_jac_input("jacfwd", x, holomorphic)
        call = (lambda *leaves: g(tree.unflatten(leaves))) if isinstance(argnums, int) else (
            lambda *leaves: g(*tree.unflatten(leaves)))

        def push(*ts):
            got: Any = jvp(call, xs, ts, has_aux=has_aux)
            return (got[1], got[2]) if has_aux else got[1]
        outs = vmap(push, out_axes=(-1, None) if has_aux else -1)(*_basis(xs))
        outs, aux = outs if has_aux else (outs, None)
        result = tree_map(lambda y: tree.unflatten(_cut(y, xs, typeof(y).ndim - 1)), outs)
        return (result, aux) if has_aux else result
    return jacfun


def jacrev(fun: Callable, argnums: int | Sequence[int] = 0, has_aux: bool = False, holomorphic: bool = False,
           allow_int: bool = False) -> Callable:
    """Jacobian by reverse mode, one pass for each output element (all in one vmap)."""
    nums = _argnums(argnums)

    @wraps(fun)
    @api_boundary
    def jacfun(*args, **kwargs):
        from aot.transforms.batching import vmap
        f, dynamic = _partial(fun, args, kwargs, nums)
        for leaf in tree_flatten(dynamic)[0]:
            _check_grad_input(leaf, holomorphic, allow_int)
        out, pullback, aux = _vjp(f, dynamic, has_aux)
        ys, out_tree = tree_flatten(out)
        for y in ys:
            _check_jac_output(y, holomorphic)
        rows = vmap(lambda *cts: pullback(out_tree.unflatten(cts)))(*_basis(ys))
        rows = rows[0] if isinstance(argnums, int) else rows
        leaves, tree = tree_flatten(rows)
        pieces = [_cut(r, ys, 0) for r in leaves]
        result = out_tree.unflatten([tree.unflatten([p[i] for p in pieces]) for i in range(len(ys))])
        return (result, aux) if has_aux else result
    return jacfun


def _check_jac_input(name, x, holomorphic):
    check_value(x, f"{name} was given an argument")
    k = kind(typeof(x).dtype)
    if holomorphic and k != "c":
        raise TypeError(f"{name} with holomorphic=True requires inputs with complex dtype, but got "
                        f"{typeof(x).dtype.name}.")
    if not holomorphic and k != "f":
        raise TypeError(f"{name} requires real-valued inputs (input dtype that is a sub-dtype of np.floating), but got "
                        f"{typeof(x).dtype.name}. For holomorphic differentiation, pass holomorphic=True. For "
                        "differentiation of non-holomorphic functions involving complex inputs or integer inputs, "
                        "use jvp directly.")


def _check_jac_output(y, holomorphic):
    k = kind(typeof(y).dtype)
    if holomorphic and k != "c" or not holomorphic and k != "f":
        raise TypeError(f"jacrev requires {'complex' if holomorphic else 'real'}-valued outputs, but got "
                        f"{typeof(y).dtype.name}. hint: see holomorphic=True, or use vjp directly")


jacobian = jacrev


def hessian(fun: Callable, argnums: int | Sequence[int] = 0, has_aux: bool = False, holomorphic: bool = False) -> Callable:
    """Second derivatives: jacfwd of jacrev."""
    return jacfwd(jacrev(fun, argnums, has_aux=has_aux, holomorphic=holomorphic), argnums, has_aux=has_aux,
                  holomorphic=holomorphic)


