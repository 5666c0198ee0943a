"""The transformations and utilities that live at the top of the package, gathered."""
from __future__ import annotations

from contextlib import ExitStack
from typing import Any, Callable, Sequence

from aot import xla
from aot.array import Array, device_put_one
from aot.dispatch import jit
from aot.source import api_boundary, wraps
from aot.trace import ClosedJaxpr, ShapeDtypeStruct, hoist_consts, typeof
from aot.trace import axis_env as bound_axis
from aot.traced import described, trace_to_entry
from aot.transforms.autodiff import (
    grad,
    hessian,
    jacfwd,
    jacobian,
    jacrev,
    jvp,
    linear_transpose,
    linearize,
    value_and_grad,
    vjp,
)
from aot.transforms.batching import vmap
from aot.tree_util import tree_flatten, tree_map

__all__ = ["Array", "block_until_ready", "device_get", "device_put", "eval_shape", "grad", "hessian", "jacfwd",
           "jacobian", "jacrev", "jit", "jvp", "linear_transpose", "linearize", "make_jaxpr", "value_and_grad", "vjp",
           "vmap"]


def make_jaxpr(fun: Callable, static_argnums: int | Sequence[int] = (),
               axis_env: Sequence[tuple[Any, int]] | None = None, return_shape: bool = False) -> Callable[..., Any]:
    """Function that returns the jaxpr of fun on its arguments (and the output shapes when return_shape).

    axis_env: names and sizes of mapped axes that fun may speak to."""
    nums = {static_argnums} if isinstance(static_argnums, int) else set(static_argnums)

    @wraps(fun)
    @api_boundary
    def make_jaxpr_f(*args, **kwargs) -> Any:
        dynamic = tuple(x for i, x in enumerate(args) if i not in nums)

        def call(*xs, **kw):
            it = iter(xs)
            return fun(*[x if i in nums else next(it) for i, x in enumerate(args)], **kw)
        leaves, in_tree = tree_flatten((dynamic, kwargs))
        with ExitStack() as stack:
            for name, size in axis_env or ():
                stack.enter_context(bound_axis(name, size))
            entry = trace_to_entry(call, in_tree, [typeof(x) for x in leaves], getattr(fun, "__name__", "fun"), ())
        closed: ClosedJaxpr = hoist_consts(entry.jaxpr, entry.captured)
        if not return_shape:
            return closed
        return closed, described(entry.out_tree, entry.jaxpr.out_avals)
    return make_jaxpr_f


def eval_shape(fun: Callable, *args, **kwargs):
    """Shapes and dtypes of fun's outputs, without computing anything.  Sizes may be unknown (`aot.export.symbolic_shape`)."""
    leaves, in_tree = tree_flatten((args, kwargs))

    def evaluate(leaves: list) -> Any:
        entry = trace_to_entry(fun, in_tree, [typeof(x) for x in leaves], getattr(fun, "__name__", "fun"), ())
        return described(entry.out_tree, entry.jaxpr.out_avals)
    if any(not isinstance(d, int) for x in leaves if type(x) is ShapeDtypeStruct for d in x.shape):
        from aot.symbolic import evaluated
        return evaluated(leaves, evaluate)
    return evaluate(leaves)


def device_put(x: Any, device: Any = None, *, src: Any = None, donate: bool = False, may_alias: bool | None = None):
    """Every leaf of x as an Array on a device.

    src, donate and may_alias have no effect: the copy is made from where x is, and x stays."""
    return tree_map(lambda leaf: device_put_one(leaf, device), x)


def device_get(x: Any) -> Any:
    """Every leaf of x as a numpy array on the host; key arrays stay key arrays."""
    return tree_map(lambda leaf: leaf._value if type(leaf) is Array and leaf.aval.physical is leaf.aval else leaf, x)


def block_until_ready(x: Any) -> Any:
    """Wait for every leaf of x; returns x."""
    buffers = []
    for leaf in tree_flatten(x)[0]:
        if type(leaf) is Array:
            buffers.append(leaf.buf)
        elif hasattr(leaf, "block_until_ready"):
            leaf.block_until_ready()
    xla.xc.batched_block_until_ready(buffers)
    return x
