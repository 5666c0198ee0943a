"""Which public names of jax 0.10.2 exist here: `python tests/api_coverage.py [MODULE...]` prints a line a module.

The inventories in data/api hold one name a line, with the parameters of functions. `EXCUSED` is the reviewed table of
names that are left out on purpose, with the reason.
"""
from __future__ import annotations

import importlib
import sys
import warnings
from pathlib import Path
from typing import Any

INVENTORY = Path(__file__).parent / "data" / "api"

#: (module, name): why it is not here.
EXCUSED: dict[tuple[str, str], str] = {
    **dict.fromkeys([("lax", n) for n in ("after_all_p", "create_token_p")],
                    "tokens carry nothing here: effects are ordered when a program is lowered"),
    **dict.fromkeys([("lax", n) for n in ("psend", "precv")], "point-to-point transfers exist on GPUs only"),
    **dict.fromkeys([("lax", n) for n in ("ragged_all_to_all", "ragged_all_to_all_p")],
                    "XLA has no CPU kernel for ragged-all-to-all, so it cannot be checked here"),
    **dict.fromkeys([("lax", n) for n in ("split_p", "stack_p", "tile_p", "unstack_p", "select_and_scatter_p")],
                    "the function exists, and is made of other primitives"),
    **dict.fromkeys([("experimental.ode", n) for n in ("map", "partial", "promote_dtypes_inexact", "ravel_first_arg",
                                                       "ravel_first_arg_", "safe_map", "safe_zip", "zip")],
                    "helpers of jax's implementation that its module does not hide"),
    **dict.fromkeys([("Array", n) for n in ("__del__", "__dict__")], "plumbing of a Python class, no API"),
    **dict.fromkeys([("experimental.multihost_utils", n) for n in (
        "P", "global_array_to_host_local_array_impl", "global_array_to_host_local_array_p", "gtl_abstract_eval",
        "host_local_array_to_global_array_impl", "host_local_array_to_global_array_p", "lru_cache", "ltg_abstract_eval",
        "ltg_batcher", "partial", "safe_zip", "tree_unflatten")], "helpers of jax's implementation that its module does not hide"),
    **dict.fromkeys([("experimental.jet", n) for n in (
        "ZeroSeries", "ZeroTerm", "call_param_updaters", "def_comp", "def_deriv", "deflinear", "defzero", "deriv_prop", "fact",
        "jet2", "jet_fun", "jet_rules", "jet_subtrace", "linear_prop", "partial", "register_pytree_node", "safe_zip",
        "traceable", "tree_unflatten", "treedef_is_leaf", "unzip2", "weakref_lru_cache", "zero_prop", "zero_series",
        "zero_term")], "helpers of jax's implementation that its module does not hide"),
    ("jax", "lib"): "jax's own implementation",
    **dict.fromkeys([("extend.core", n) for n in ("AbstractToken", "Token")],
                    "tokens carry nothing here: effects are ordered when a program is lowered"),
    **dict.fromkeys([("extend.core", n) for n in ("CallPrimitive", "call_impl")], "calls are jit_p here"),
    **dict.fromkeys([("extend.core.primitives", n) for n in ("after_all_p", "create_token_p", "ragged_all_to_all_p",
                                                             "select_and_scatter_p")], "as in lax"),
    **dict.fromkeys([("extend.core.primitives", n) for n in ("add_jaxvals_p", "empty2_p", "hessenberg_p", "schur_p",
                                                             "tridiagonal_p")], "the function is made of other primitives"),
    **dict.fromkeys([("interpreters.ad", n) for n in ("add_jaxvals", "add_jaxvals_p", "jvp", "linearize")],
                    "parts of jax's implementation of its transformations"),
    **dict.fromkeys([("interpreters.batching", n) for n in ("register_vmappable", "unregister_vmappable")],
                    "types of one's own that are vmapped over are not supported: make them pytrees"),
    ("Array", "traceback"): "where a C++ array object was made; ours are Python objects",
}


def inventory(module: str) -> dict[str, str]:
    """Names of a module with their parameters (empty for what is not a function)."""
    rows = [line.split("\t") for line in (INVENTORY / f"{module}.txt").read_text().splitlines()]
    return {row[0]: row[2] if len(row) > 2 else "" for row in rows}


def modules() -> list[str]:
    """All modules with an inventory."""
    return sorted(p.stem for p in INVENTORY.glob("*.txt"))


def find(module: str) -> Any:
    """Our counterpart of a module or class, or None."""
    if module in ("Array", "Array.at"):
        import aot.numpy as jnp

        x = jnp.ones((2, 2))
        return x if module == "Array" else x.at[0]
    try:
        return importlib.import_module("aot" if module == "jax" else f"aot.{module}")
    except ImportError:
        return None


def has(owner: Any, name: str) -> bool:
    """Whether `owner` has the name; an attribute that exists and raises counts as there."""
    if owner is None:
        return False
    if name in dir(type(owner)) or name in vars(type(owner)):
        return True
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            getattr(owner, name)
        except (AttributeError, ImportError):
            return False
        except Exception:
            return True
    return True


def missing(module: str) -> list[str]:
    """Names of a module that are not here and not excused."""
    owner = find(module)
    return [name for name in inventory(module) if not has(owner, name) and (module, name) not in EXCUSED]


def main(names: list[str]) -> int:
    """Print the table; the exit code says whether anything is missing."""
    worst = total = present = 0
    for module in names or modules():
        names_, gone = inventory(module), missing(module)
        excused = sum(1 for key in EXCUSED if key[0] == module)
        total, present = total + len(names_), present + len(names_) - len(gone) - excused
        worst |= bool(gone)
        shown = ", ".join(gone[:12]) + (f", ... ({len(gone)})" if len(gone) > 12 else "")
        print(f"{module:45s} {len(names_) - len(gone) - excused:4d} / {len(names_):4d}  {'missing: ' + shown if gone else ''}")
    print(f"{'all':45s} {present:4d} / {total:4d}")
    return int(worst)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
