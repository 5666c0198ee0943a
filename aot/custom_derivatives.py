"""Derivatives that are given: of functions (custom_jvp, custom_vjp, custom_gradient), of linear ones (linear_call)."""
from __future__ import annotations

from typing import Any

from aot.custom import CustomVJPPrimal, SymbolicZero, custom_gradient, custom_jvp, custom_vjp
from aot.custom_calls import custom_jvp_p as custom_jvp_call_p
from aot.custom_calls import custom_vjp_p as custom_vjp_call_p
from aot.custom_linear import linear_call, remat_opt_p, zero_from_primal
from aot.transforms.more import closure_convert
from aot.tree_util import tree_map


def custom_vjp_primal_tree_values(tree: Any) -> Any:
    """The values of a tree of `CustomVJPPrimal`s, which fwd rules take with symbolic_zeros.  TypeError for other leaves."""
    def value(x: Any) -> Any:
        if not isinstance(x, CustomVJPPrimal):
            raise TypeError(f"custom_vjp_primal_tree_values takes a tree of CustomVJPPrimal, got a leaf of type {type(x)}")
        return x.value
    return tree_map(value, tree)


__all__ = ["CustomVJPPrimal", "SymbolicZero", "closure_convert", "custom_gradient", "custom_jvp", "custom_jvp_call_p",
           "custom_vjp", "custom_vjp_call_p", "custom_vjp_primal_tree_values", "linear_call", "remat_opt_p", "zero_from_primal"]
