"""Importing this module fills the tables of rows."""
from . import (  # noqa: F401
    attention,
    bits,
    complex_rows,
    control,
    elementwise,
    indexing,
    linear_algebra,
    products,
    recognised,
    reductions,
    shapes,
    sorting,
    spectral,
)
