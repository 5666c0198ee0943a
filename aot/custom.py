"""Decorators for user-defined derivatives: custom_jvp, custom_vjp, custom_gradient.  Calls of them: aot/custom_calls.py."""
from __future__ import annotations

import functools
import inspect
from dataclasses import dataclass
from typing import Any, Callable, Sequence

from aot import dtypes
from aot.arguments import resolve_static
from aot.custom_calls import JvpCall, VjpCall
from aot.source import api_boundary, wraps
from aot.trace import Jaxpr, Zero, eval_jaxpr, is_zero, stage, state, tangent_aval, typeof
from aot.trace.scalars import with_type
from aot.transforms.jvp import instantiate_zero
from aot.tree_util import broadcast_prefix, register_pytree_node, tree_flatten, tree_structure


def _name(fun: Callable) -> str: return getattr(fun, "__name__", str(fun))


def _are_all(fun: Callable, args: tuple) -> bool:
    """Whether these are all arguments of a plain function, so that its signature need not be asked."""
    code = getattr(fun, "__code__", None)
    return (code is not None and len(args) == code.co_argcount and not code.co_kwonlyargcount
            and not code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS) and not hasattr(fun, "__wrapped__"))


class _Call:
    """One call of a decorated function: the types of what is differentiated, and what is passed on as it is.

    The equation keeps it, so it has no part in the values."""

    @classmethod
    def of(cls, kind: str, decorated: Any, args: tuple, kwargs: dict) -> tuple[_Call, list]:
        """(a call, the leaves of what is differentiated)."""
        call = cls()
        return call, call._take(kind, decorated, args, kwargs)

    def _take(self, kind: str, decorated: Any, args: tuple, kwargs: dict) -> list:
        self.fun, self.name = decorated.fun, _name(decorated.fun)
        if kwargs or not _are_all(self.fun, args):
            try:        # keyword arguments become positions: rules take nothing else
                bound = inspect.signature(self.fun).bind(*args, **kwargs)
                given = {*bound.arguments}
                bound.apply_defaults()          # those of keyword-only ones are the function's own concern
                args, kwargs = bound.args, {k: v for k, v in bound.kwargs.items() if k in given or k in kwargs}
            except (TypeError, ValueError):
                pass
        if kwargs:
            raise TypeError(f"{kind} function {self.name} takes keyword-only arguments; hint: make them positional")
        nums = decorated.nondiff_argnums
        self.static = {i: args[i] for i in nums if i < len(args)}
        leaves, self.in_tree = tree_flatten(tuple(x for i, x in enumerate(args) if i not in nums))
        self.avals = self.in_tree.unflatten(map(typeof, leaves))
        self.box: dict[str, Any] = {}       # trees of results, set by whichever function runs first
        return list(map(with_type, leaves))

    def merged(self, xs) -> list:
        """All arguments, with these leaves for the differentiated ones."""
        it = iter(self.in_tree.unflatten(xs))
        return [self.static[i] if i in self.static else next(it) for i in range(len(self.static) + len(self.avals))]

    def flat(self, *xs) -> list:
        outs, self.box["tree"] = tree_flatten(self.fun(*self.merged(xs)))
        return outs


class custom_jvp:
    """A function with its own forward derivative.

    `@custom_jvp def f(x, y)`, then `@f.defjvp def rule(primals, tangents): return out, out_tangent`; or
    `f.defjvps(lambda t, out, x, y: ..., None)`.  nondiff_argnums: arguments passed to the rule first, as they are."""

    def __init__(self, fun: Callable, nondiff_argnums: Sequence[int] = (), nondiff_argnames: Sequence[str] = ()):
        functools.update_wrapper(self, fun)
        self.fun = fun
        nums, _ = resolve_static(fun, tuple(nondiff_argnums), tuple(nondiff_argnames))
        self.nondiff_argnums, self.jvp, self.symbolic_zeros = tuple(sorted(nums)), None, False

    def defjvp(self, jvp: Callable, symbolic_zeros: bool = False) -> Callable:
        self.jvp, self.symbolic_zeros = jvp, symbolic_zeros
        return jvp

    def defjvps(self, *jvps: Callable | None) -> None:
        """One function per argument: jvps[i](t, out, *primals) -> contribution to the tangent, or None for zero."""
        if self.nondiff_argnums:
            raise TypeError("Can't use ``defjvps`` with ``nondiff_argnums``.")

        def jvp(primals, tangents):
            from aot.ops.families import add_any
            out = self(*primals)
            parts = [f(t, out, *primals) for f, t in zip(jvps, tangents) if f is not None]
            total = functools.reduce(add_any, parts) if parts else instantiate_zero(Zero.like(out))
            return out, total
        self.defjvp(jvp)

    @api_boundary
    def __call__(self, *args, **kwargs):
        if self.jvp is None:
            raise AttributeError(f"No JVP defined for custom_jvp function {_name(self.fun)} using defjvp.")
        call, leaves = _Call.of("custom_jvp", self, args, kwargs)
        name, box = call.name, call.box

        def rule(primals, tangents):
            ps = call.in_tree.unflatten(map(with_type, primals))
            ts = call.in_tree.unflatten(map(symbolic_zero if self.symbolic_zeros else array_of_zeros, tangents))
            got = self.jvp(*call.static.values(), ps, ts)
            if not isinstance(got, (tuple, list)) or len(got) != 2:
                raise TypeError(f"Custom JVP rule for function {name} must produce a pair (list or tuple of length two) "
                                f"representing primal and tangent outputs, but got {got}.")
            outs, box["tree"] = tree_flatten(got[0])
            dots, t_tree = tree_flatten(got[1])
            if box["tree"] != t_tree:
                raise TypeError(f"Custom JVP rule for function {name} must produce primal and tangent outputs with equal "
                                f"container (pytree) structures, but got {box['tree']} and {t_tree} respectively.")
            return outs, [_checked_tangent(name, o, t) for o, t in zip(outs, dots)]
        outs = state.trace.custom_jvp(JvpCall(call.flat, rule, name), leaves)
        return box["tree"].unflatten(outs)

    def __get__(self, obj, owner=None):
        return self if obj is None else functools.partial(self, obj)


class SymbolicZero(Zero):
    """A tangent known to be zero, as rules with symbolic_zeros=True see it."""
    ndim = property(lambda self: len(self.aval.shape))

    @staticmethod
    def from_primal_value(val: Any) -> SymbolicZero: return SymbolicZero(tangent_aval(typeof(val)))


def symbolic_zero(t: Any) -> Any:
    """A tangent or cotangent as rules with symbolic_zeros=True see it."""
    return SymbolicZero(t.aval) if is_zero(t) else t


def array_of_zeros(t: Any) -> Any:
    """A tangent or cotangent as rules see it: an array, also where it is zero."""
    from aot.ops.elementwise import as_array
    return as_array(instantiate_zero(t)) if is_zero(t) else t


def _checked_tangent(name, out, t):
    if isinstance(t, Zero):
        return Zero.like(out)
    want, got = tangent_aval(typeof(out)), typeof(t)
    if want.dtype == dtypes.float0:
        return Zero(want)
    if want.shape != got.shape or want.dtype != got.dtype:
        raise TypeError(f"Custom JVP rule for function {name} must produce primal and tangent outputs with corresponding "
                        f"shapes and dtypes. Expected {want.str_short(False)} (tangent type of {typeof(out).str_short(False)}) "
                        f"but got {got.str_short(False)}.")
    return t


class custom_vjp:
    """A function with its own reverse derivative: `f.defvjp(fwd, bwd)`, fwd(*args) -> (out, residuals),
    bwd(residuals, ct) -> tuple of cotangents (None for zero), one for each differentiable argument.

    symbolic_zeros: fwd takes a `CustomVJPPrimal` in place of each array, and bwd a `SymbolicZero` for each cotangent
    known to be zero.  optimize_remat: where the residuals are not used, as when checkpoint computes the output again, the
    function itself runs instead of fwd."""

    def __init__(self, fun: Callable, nondiff_argnums: Sequence[int] = (), nondiff_argnames: Sequence[str] = ()):
        functools.update_wrapper(self, fun)
        self.fun = fun
        nums, _ = resolve_static(fun, tuple(nondiff_argnums), tuple(nondiff_argnames))
        self.nondiff_argnums, self.fwd, self.bwd = tuple(sorted(nums)), None, None
        self.symbolic_zeros = self.optimize_remat = False

    def defvjp(self, fwd: Callable, bwd: Callable, symbolic_zeros: bool = False, optimize_remat: bool = False) -> None:
        self.fwd, self.bwd, self.symbolic_zeros, self.optimize_remat = fwd, bwd, symbolic_zeros, optimize_remat

    @api_boundary
    def __call__(self, *args, **kwargs):
        if self.fwd is None or self.bwd is None:
            raise AttributeError(f"No VJP defined for custom_vjp function {_name(self.fun)} using defvjp.")
        call, leaves = _Call.of("custom_vjp", self, args, kwargs)
        name, box = call.name, call.box

        def fwd(perturbed, *xs):
            xs = map(with_type, xs)
            got = self.fwd(*call.merged(map(CustomVJPPrimal, xs, perturbed) if self.symbolic_zeros else xs))
            if not isinstance(got, (tuple, list)) or len(got) != 2:
                raise TypeError(f"Custom VJP fwd rule for function {name} must produce a pair (list or tuple of length "
                                f"two) representing the primal output and the residuals, but got {got}.")
            outs, box["tree"] = tree_flatten(got[0])
            res, box["res"] = tree_flatten(got[1])
            return outs, res

        def bwd(res, cts):
            ct = box["tree"].unflatten(map(symbolic_zero if self.symbolic_zeros else array_of_zeros, cts))
            back = self.bwd(*call.static.values(), box["res"].unflatten(res), ct)
            return _flat_cotangents(name, back, call.avals)
        if self.optimize_remat:
            from aot.custom_linear import replaceable
            fwd = replaceable(fwd, call.flat, name)
        outs = state.trace.custom_vjp(VjpCall(call.flat, fwd, bwd, name), leaves)
        return box["tree"].unflatten(outs)

    def __get__(self, obj, owner=None):
        return self if obj is None else functools.partial(self, obj)


@dataclass(frozen=True)
class CustomVJPPrimal:
    """What fwd receives for each array when symbolic_zeros=True: its value, and whether it is differentiated."""
    value: Any
    perturbed: bool


def _flat_cotangents(name, back, avals) -> list:
    if isinstance(back, list):
        back = tuple(back)
    if not isinstance(back, tuple) or len(back) != len(avals):
        raise TypeError(f"Custom VJP bwd rule for {name} must produce a tuple of length equal to the primal args tuple "
                        f"({len(avals)}), but got {type(back)}" + (f" of length {len(back)}" if isinstance(back, tuple)
                                                                     else "") + ".")
    return [c for b, x in zip(back, avals) for c in _argument_cotangents(name, b, x)]


def _argument_cotangents(name: str, back: Any, argument: Any) -> list:
    """The cotangents of one argument, of which None stands for zeros; what stands for no array is left out."""
    leaves, tree = tree_flatten(argument)
    try:
        cts = broadcast_prefix(back, argument, is_leaf=lambda v: v is None)
    except ValueError:
        raise TypeError(f"Custom VJP bwd rule for {name} must produce cotangents with the structure of the arguments: "
                        f"expected {tree}, got {tree_structure(back, is_leaf=lambda v: v is None)}.") from None
    return [_checked_cotangent(name, c, tangent_aval(typeof(x))) for c, x in zip(cts, leaves)]


def _checked_cotangent(name: str, ct: Any, want: Any) -> Any:
    if ct is None or want.dtype == dtypes.float0 or isinstance(ct, Zero):
        return Zero(want)
    if typeof(ct).shape != want.shape:
        raise ValueError(f"Custom VJP bwd rule for {name} must produce cotangents of the shapes of the "
                         f"arguments: expected {want.str_short(False)}, got {typeof(ct).str_short(False)}.")
    return ct


def custom_gradient(fun: Callable) -> Callable:
    """fun(*args) -> (out, pullback): a function whose reverse derivative is that pullback."""
    @custom_vjp
    def wrapped(*args):
        return fun(*args)[0]

    def fwd(*args):
        out, rule = fun(*args)
        leaves, tree = tree_flatten(out)
        avals = [typeof(x) for x in leaves]

        def flat(*c):
            back = rule(tree.unflatten(c))
            back = back if isinstance(back, tuple) else (back,)
            return tree_flatten(back)[0]
        jaxpr, captured = stage(flat, avals)
        return out, _Rule(jaxpr, captured)

    def bwd(res, ct):
        return tuple(eval_jaxpr(res.jaxpr, [*res.captured, *tree_flatten(ct)[0]]))
    wrapped.defvjp(fwd, bwd)
    return wraps(fun)(lambda *args: wrapped(*args))


class _Rule:
    """A staged pullback as a residual."""

    def __init__(self, jaxpr: Jaxpr, captured): self.jaxpr, self.captured = jaxpr, captured


register_pytree_node(_Rule, lambda r: (tuple(r.captured), r.jaxpr), lambda j, c: _Rule(j, list(c)))
