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

__all__ = ["EigImplementation", "EighImplementation", "SvdAlgorithm", "cholesky", "cholesky_update", "eig", "eigh",
           "geqp3", "geqrf", "hessenberg", "householder_product", "lu", "lu_pivots_to_permutation", "ormqr", "qr",
           "schur", "svd", "symmetric_product", "triangular_solve", "tridiagonal", "tridiagonal_solve"]
