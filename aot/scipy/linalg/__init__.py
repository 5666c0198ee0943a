"""Linear algebra: factorizations, solvers, functions of matrices, matrices of a given form."""
from aot.scipy._util import lazily

_FILES = {
    "factorizations": """
        cho_factor cholesky det eigh eigh_tridiagonal hessenberg inv lu lu_factor qr qr_multiply rsf2csf schur svd""",
    "solvers": "cho_solve lu_solve solve solve_sylvester solve_triangular",
    "matrix_functions": "expm expm_frechet funm polar sqrtm",
    "special_matrices": """
        block_diag circulant companion convolution_matrix dft fiedler fiedler_companion hadamard hankel helmert hilbert
        invhilbert invpascal leslie pascal toeplitz""",
}
__getattr__, __dir__, __all__ = lazily(__name__, _FILES)
