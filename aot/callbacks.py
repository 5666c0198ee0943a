"""Users' functions for calling back into Python: pure_callback and io_callback."""
from __future__ import annotations

from typing import Any, Callable

import numpy as np

from aot import dtypes
from aot.array import shared
from aot.ops.callbacks import callback as _callback
from aot.source import api_boundary
from aot.trace import ShapedArray
from aot.tree_util import tree_flatten


def _declared(result_shape_dtypes: Any):
    leaves, tree = tree_flatten(result_shape_dtypes)
    return [ShapedArray(tuple(x.shape), dtypes.canonicalize_dtype(x.dtype)) for x in leaves], tree


def _flat(fun: Callable, in_tree, out_tree, kwargs: dict) -> Callable:
    """fun over trees -> function of flat numpy arrays returning a flat list."""
    def call(*leaves):
        args, kw = in_tree.unflatten(map(shared, leaves))
        out = fun(*args, **kw)
        outs, tree = tree_flatten(out)
        if tree != out_tree:
            raise TypeError(f"the callback returned {tree}, but {out_tree} was declared")
        return [np.asarray(x) for x in outs]
    call.__name__ = getattr(fun, "__name__", "callback")
    return call


@api_boundary
def pure_callback(callback: Callable, result_shape_dtypes: Any, *args, sharding=None, vmap_method: str | None = None,
                  **kwargs):
    """Call a Python function of concrete arrays without side effects from compiled code.

    result_shape_dtypes: tree of ShapeDtypeStructs (or arrays) that the function returns.  vmap_method: 'sequential',
    'sequential_unrolled', 'expand_dims', 'broadcast_all' or None (refuse).  sharding has no effect: a program over several
    devices calls from the first."""
    avals, out_tree = _declared(result_shape_dtypes)
    leaves, in_tree = tree_flatten((args, kwargs))
    outs = _callback(_flat(callback, in_tree, out_tree, kwargs), leaves, avals, "pure", False, vmap_method)
    return out_tree.unflatten(outs)


@api_boundary
def io_callback(callback: Callable, result_shape_dtypes: Any, *args, sharding=None, ordered: bool = False, **kwargs):
    """Call a Python function with side effects from compiled code, exactly once; ordered keeps program order.

    sharding has no effect, as in `pure_callback`."""
    avals, out_tree = _declared(result_shape_dtypes)
    leaves, in_tree = tree_flatten((args, kwargs))
    outs = _callback(_flat(callback, in_tree, out_tree, kwargs), leaves, avals, "io", ordered, "sequential")
    return out_tree.unflatten(outs)


def effects_barrier() -> None:
    """Wait for side effects.  Programs with callbacks are waited for as they run, so there is nothing left to do."""
