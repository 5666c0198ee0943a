"""Smaller transformations: closure_convert, fwd_and_bwd, named scopes, evaluation while tracing."""
from __future__ import annotations

import contextlib
from typing import Any, Callable, Iterator, Sequence

from aot.dispatch import jit
from aot.source import api_boundary, scope, wraps
from aot.trace import Trace, base_trace, eval_jaxpr, hoist_consts, is_tracer, stage, state, tracing, typeof
from aot.trace.jaxpr import Jaxpr
from aot.tree_util import tree_flatten


@api_boundary
def closure_convert(fun: Callable, *example_args) -> tuple[Callable, list]:
    """(function that takes the values fun closes over as further arguments, those values).

    Hoisted are floating-point arrays and traced values; call it as converted(*args, *consts)."""
    leaves, in_tree = tree_flatten(example_args)
    box: dict[str, Any] = {}

    def flat(*xs):
        outs, box["tree"] = tree_flatten(fun(*in_tree.unflatten(xs)))
        return outs
    jaxpr, captured = stage(flat, [typeof(x) for x in leaves], getattr(fun, "__name__", "fun"))
    closed = hoist_consts(jaxpr, captured)
    consts, inner = closed.consts, closed.inner
    body = Jaxpr([*closed.constvars, *inner.invars], inner.eqns, inner.outvars)

    def converted(*args):
        plain, given = args[:len(args) - len(consts)], args[len(args) - len(consts):]
        xs, tree = tree_flatten(plain)
        if tree != in_tree:
            raise TypeError(f"the converted function was made for arguments of structure {in_tree}, got {tree}")
        return box["tree"].unflatten(eval_jaxpr(body, [*given, *xs]))
    return converted, consts


def fwd_and_bwd(fun: Callable, argnums: int | Sequence[int], has_aux: bool = False, jitted: bool = True
                ) -> tuple[Callable, Callable]:
    """(fwd, bwd): fwd(*args) -> (out[, aux], residuals); bwd(residuals, ct) -> gradients with respect to argnums."""
    from aot.transforms.autodiff import _argnums, _partial, vjp
    nums = _argnums(argnums)

    def fwd(*args, **kwargs):
        f, dynamic = _partial(fun, args, kwargs, nums)
        got = vjp(f, *dynamic, has_aux=has_aux)
        if has_aux:
            out, pullback, aux = got  # type: ignore[misc]
            return out, aux, pullback
        return got

    def bwd(pullback, ct):
        grads = pullback(ct)
        return grads[0] if isinstance(argnums, int) else grads
    return (jit(fwd), jit(bwd)) if jitted else (fwd, bwd)


class _Folding(Trace):
    """Runs what has no traced operand now, and leaves the rest to the trace outside."""
    folds = True

    def __init__(self, parent: Trace): self.parent = parent

    def _of(self, args: Sequence) -> Trace: return self.parent if any(map(is_tracer, args)) else base_trace

    def process(self, prim, args, params):
        with tracing(self._of(args)) as trace:
            return trace.process(prim, args, params)

    def custom_jvp(self, call, args):
        with tracing(self._of(args)) as trace:
            return trace.custom_jvp(call, args)

    def custom_vjp(self, call, args):
        with tracing(self._of(args)) as trace:
            return trace.custom_vjp(call, args)


@contextlib.contextmanager
def ensure_compile_time_eval() -> Iterator[None]:
    """Run operations on concrete values now, even while something is being traced.  Those on traced values are traced."""
    with tracing(_Folding(state.trace)):
        yield


class named_scope(contextlib.ContextDecorator):
    """Name a part of a program: the name is on its operations in lowered and compiled programs, and so in profiles.

    Scopes nest, as in "outer/inner"; so do those of a called function and of the place of the call.  Values are unaffected."""

    def __init__(self, name: str):
        if not isinstance(name, str):
            raise TypeError(f"named_scope name argument must be a string, got {type(name)}")
        self.name, self._blocks = name, []

    def __enter__(self):
        self._blocks.append(scope(self.name))
        self._blocks[-1].__enter__()
        return self

    def __exit__(self, *exc): return self._blocks.pop().__exit__(*exc)


def named_call(fun: Callable, *, name: str | None = None) -> Callable:
    """fun as a named part of the program."""
    @wraps(fun)
    def named(*args, **kwargs):
        with named_scope(name or getattr(fun, "__name__", "fun")):
            return fun(*args, **kwargs)
    return named


def copy_to_host_async(x: Any) -> Any:
    """Start copying every leaf to the host; returns x."""
    for leaf in tree_flatten(x)[0]:
        if hasattr(leaf, "copy_to_host_async") and not is_tracer(leaf):
            leaf.copy_to_host_async()
    return x


__all__ = ["closure_convert", "copy_to_host_async", "ensure_compile_time_eval", "fwd_and_bwd", "named_call",
           "named_scope"]
