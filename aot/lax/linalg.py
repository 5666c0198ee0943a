"""Linear algebra with JAX's names: factorizations with their derivatives, over the kernels in aot/ops."""
from aot.ops.factorizations import (
                                    EighImplementation,
                                    EigImplementation,
                                    SvdAlgorithm,
                                    cholesky,
                                    cholesky_update,
                                    eig,
                                    eigh,
                                    geqp3,
                                    geqrf,
                                    hessenberg,
                                    householder_product,
                                    lu,
                                    lu_pivots_to_permutation,
                                    ormqr,
                                    qr,
                                    schur,
                                    svd,
                                    symmetric_product,
                                    triangular_solve,
                                    tridiagonal,
                                    tridiagonal_solve,
)

#: JAX's names of primitives -> ours: (module of aot/ops, name)
_PRIMITIVES = {
    **{f"{n}_p": (module, f"{n}_p") for module, names in (
        ("factorizations", "cholesky cholesky_update eig eigh lu lu_pivots_to_permutation qr svd symmetric_product "
                           "triangular_solve tridiagonal_solve"),
        ("lapack", "householder_product ormqr")) for n in names.split()},
    "hessenberg_p": ("lapack", "gehrd_p"), "schur_p": ("lapack", "gees_p"), "tridiagonal_p": ("lapack", "sytrd_p"),
}


def __getattr__(name: str):
    import importlib
    if name == "qdwh":
        return importlib.import_module("aot.scipy.linalg.polar_factors").qdwh
    if name in _PRIMITIVES:
        module, there = _PRIMITIVES[name]
        return getattr(importlib.import_module(f"aot.ops.{module}"), there)
    raise AttributeError(f"module 'aot.lax.linalg' has no attribute {name!r}")


__all__ = ["EigImplementation", "EighImplementation", "SvdAlgorithm", "cholesky", "cholesky_update", "eig", "eigh",
           "geqp3", "geqrf", "hessenberg", "householder_product", "lu", "lu_pivots_to_permutation", "ormqr", "qr",
           "schur", "svd", "symmetric_product", "triangular_solve", "tridiagonal", "tridiagonal_solve"]
