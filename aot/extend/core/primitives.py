"""The primitives that equations of jaxprs have, by name."""
from __future__ import annotations

import importlib
from typing import Any

#: those that are not names of `aot.lax`
_ELSEWHERE = {
    **dict.fromkeys("cholesky_p eig_p eigh_p lu_p qr_p svd_p triangular_solve_p tridiagonal_solve_p".split(),
                    "aot.ops.factorizations"),
    **dict.fromkeys("custom_lin_p custom_jvp_p custom_vjp_p".split(), "aot.custom_calls"),
    **dict.fromkeys("get_p swap_p".split(), "aot.ops.refs"),
    **dict.fromkeys("checkpoint_p name_p".split(), "aot.ad_checkpoint"),
    "householder_product_p": "aot.ops.lapack", "pjit_p": "aot.ops.call", "random_gamma_p": "aot.ops.random_gamma",
    "threefry2x32_p": "aot.ops.threefry",
}
#: other names of the same
_ALIASES = {"custom_jvp_call_p": "custom_jvp_p", "custom_vjp_call_p": "custom_vjp_p", "jit_p": "pjit_p",
            "remat_p": "checkpoint_p", "call_p": "pjit_p", "closed_call_p": "pjit_p"}      # a call that is inlined is a call


def __getattr__(name: str) -> Any:
    if not name.endswith("_p"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    name = _ALIASES.get(name, name)
    return getattr(importlib.import_module(_ELSEWHERE.get(name, "aot.lax")), name)
