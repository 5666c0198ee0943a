"""Sparse arrays: batched coordinates (BCOO) and batched compressed rows (BCSR), their functions, and `sparsify`."""
from aot.scipy._util import lazily

_FUNCTIONS = """
    broadcast_in_dim concatenate conv_general_dilated dot_general dot_general_p dot_general_sampled dot_general_sampled_p
    dynamic_slice extract extract_p fromdense fromdense_p gather multiply_dense multiply_sparse reduce_sum reshape rev slice
    sort_indices sort_indices_p spdot_general_p squeeze sum_duplicates sum_duplicates_p todense todense_p transpose transpose_p
    update_layout"""
_BY_ROWS = """
    broadcast_in_dim concatenate dot_general dot_general_p extract extract_p fromdense fromdense_p sum_duplicates todense
    todense_p"""
_MATRIX = "fromdense fromdense_p matmat matmat_p matvec matvec_p todense todense_p"


def _named(prefix: str, names: str) -> str: return " ".join(f"{prefix}_{name}" for name in names.split())


__getattr__, __dir__, __all__ = lazily(__name__, {
    "_base": "JAXSparse",
    "util": "CuSparseEfficiencyWarning SparseEfficiencyError SparseEfficiencyWarning",
    "bcoo": "BCOO " + _named("bcoo", _FUNCTIONS),
    "bcsr": "BCSR " + _named("bcsr", _BY_ROWS),
    "coo": "COO " + _named("coo", _MATRIX),
    "csr": "CSC CSR " + _named("csr", _MATRIX),
    "api": "empty eye todense todense_p",
    "ad": "grad jacfwd jacobian jacrev value_and_grad",
    "random": "random_bcoo",
    "transform": "SparseTracer sparsify",
}, "ad api bcoo bcsr coo csr linalg random transform util")
