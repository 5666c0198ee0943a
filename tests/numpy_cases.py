"""The table of calls that compare `aot.numpy` with jax: one row a family of calls, expanded into many cases.

A case is `(name, args, kwargs)`: a dotted name below `jax.numpy`, and arguments as numpy arrays, Python scalars, or
functions of the module under test (for arguments that are functions or dtypes themselves). `cases()` gives all of them;
tests sample, `tests/conformance_api.py` runs the whole table.
"""
from __future__ import annotations

import collections
import itertools
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

bf16 = ml_dtypes.bfloat16
FLOATS, INTS, BOOL = ("float32", "float16", "bfloat16"), ("int32", "int8", "uint8", "uint32"), ("bool",)
COMPLEX = ("complex64",)
REAL, ALL = FLOATS + INTS + BOOL, FLOATS + INTS + BOOL + COMPLEX


class Case(NamedTuple):
    """One call."""

    name: str
    args: tuple
    kwargs: dict
    # How exact the results have to be, as a multiple of the dtype's epsilon; None: exactly equal.
    tolerance: float | None = 16
    grad: bool = False


class M:
    """An argument made by a function of the module under test (`aot.numpy` or `jax.numpy`)."""

    def __init__(self, make: Any, label: str):
        self.make, self.label = make, label

    def __repr__(self) -> str:
        return self.label


def dtype_of(name: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, name)) if hasattr(ml_dtypes, name) else np.dtype(name)


def values(shape: tuple[int, ...], dtype: str = "float32", seed: int = 0, low: float = -3, high: float = 3) -> np.ndarray:
    """Reproducible numbers; different for each shape, dtype and seed."""
    rng = np.random.default_rng([seed, len(dtype), *map(int, shape), sum(map(ord, dtype))])
    x = rng.uniform(low, high, shape)
    kind = dtype_of(dtype).kind
    if dtype.startswith("complex"):
        return (x + 1j * rng.uniform(low, high, shape)).astype(dtype)
    if dtype == "bool":
        return x > 0
    if kind == "u":
        return rng.integers(0, 7, shape).astype(dtype)
    if kind == "i":
        return rng.integers(-5, 6, shape).astype(dtype)
    return np.asarray(x).astype(dtype_of(dtype))


def edges(dtype: str = "float32") -> np.ndarray:
    """Zeros, infinities, nan, extreme values."""
    d = dtype_of(dtype)
    if dtype.startswith("complex"):
        return np.array([0, -0.0, 1, complex(np.inf, 1), complex(1, np.inf), complex(np.nan, 0), -1j], d)
    if dtype == "bool":
        return np.array([True, False])
    if d.kind in "iu":
        info = np.iinfo(d)
        return np.array([0, 1, info.max, info.min, 7], d)
    return np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.5, -2.5, 3.5], d)


def spd(n: int, dtype: str = "float32", batch: tuple[int, ...] = ()) -> np.ndarray:
    """Symmetric positive definite matrices."""
    a = values((*batch, n, n), dtype, seed=n)
    return (a @ np.conj(np.swapaxes(a, -1, -2)) + n * np.eye(n)).astype(dtype)


V = values
_SHAPES = ((), (4,), (2, 3), (0, 3))


def _unary(names: str, dtypes: tuple[str, ...], low: float = -3, high: float = 3, special: bool = True, **options: Any):
    for name, dtype in itertools.product(names.split(), dtypes):
        for shape in _SHAPES if dtype in ("float32", "int32") else ((3,),):
            yield Case(name, (V(shape, dtype, low=low, high=high),), {}, grad=dtype == "float32" and shape == (4,), **options)
        if special and dtype in ("float32", "int32", "complex64", "bool", "uint8", "bfloat16"):
            yield Case(name, (edges(dtype),), {}, **options)
    for name in names.split():
        for scalar in (2.0, 1, True):
            yield Case(name, (scalar,), {}, **options)


_PAIRS = (((3,), (3,)), ((2, 3), (3,)), ((), (3,)), ((2, 1), (1, 3)), ((0, 2), (2,)))
_MIXES = (("float32", "float32"), ("float32", "int32"), ("int32", "int32"), ("int8", "uint8"), ("bfloat16", "float32"),
          ("bool", "int32"), ("uint8", "uint8"), ("float16", "bfloat16"), ("int32", "bool"))


def _binary(names: str, mixes: tuple = _MIXES, low: float = -3, high: float = 3, scalars: tuple = (2, 2.5, True, -1),
            **options: Any):
    for name in names.split():
        for (s1, s2), (d1, d2) in itertools.product(_PAIRS, mixes[:2]):
            yield Case(name, (V(s1, d1, 1, low, high), V(s2, d2, 2, low, high)), {},
                       grad=(d1, d2) == ("float32", "float32") and s1 == s2, **options)
        for d1, d2 in mixes[2:]:
            yield Case(name, (V((4,), d1, 1, low, high), V((4,), d2, 2, low, high)), {}, **options)
        for d in ("float32", "int32", "bfloat16"):
            if any(d in mix for mix in mixes):
                yield from (Case(name, (V((3,), d, 1, low, high), s), {}, **options) for s in scalars)
                yield from (Case(name, (s, V((3,), d, 1, low, high)), {}, **options) for s in scalars[:2])
        e = edges("float32")
        if any("float32" in mix for mix in mixes):
            yield Case(name, (np.repeat(e, len(e)), np.tile(e, len(e))), {}, **options)


def _reductions(names: str, dtypes: tuple[str, ...], **options: Any):
    axes = (None, 0, -1, (0, 1), ())
    for name in names.split():
        for dtype in dtypes:
            yield from (Case(name, (V((2, 3, 4), dtype),), {"axis": axis}, **options) for axis in axes)
            yield Case(name, (V((3, 4), dtype),), {"axis": 1, "keepdims": True}, grad=dtype == "float32", **options)
        yield Case(name, (edges(dtypes[0]),), {}, **options)
        yield Case(name, (V((2, 3)),), {"axis": 2}, **options)
        yield Case(name, (V((2, 3)),), {"axis": (0, 0)}, **options)
        yield Case(name, ([1.0, 2.0],), {}, **options)
        yield Case(name, (2.0,), {}, **options)


def _rows(name: str, *rows: tuple, tolerance: float | None = 16, grad: bool = False):
    """Rows of positional arguments; a dict at the end holds keyword arguments."""
    for row in rows:
        kwargs = row[-1] if row and isinstance(row[-1], dict) else {}
        yield Case(name, row[:-1] if kwargs or (row and isinstance(row[-1], dict)) else row, kwargs, tolerance, grad)


def _elementwise():
    yield from _unary("exp exp2 expm1 sin cos tan sinh cosh tanh arctan arcsinh cbrt", FLOATS + ("int32", "bool"))
    yield from _unary("log log1p log2 log10 sqrt", FLOATS + ("int32", "uint8"), 0.1, 3)
    yield from _unary("exp log sqrt sin cos tan sinh cosh tanh arctan arcsinh square reciprocal sign negative positive "
                      "absolute conj conjugate real imag angle isnan isinf isfinite iscomplex isreal log2 log10",
                      COMPLEX, special=False, tolerance=64)
    yield from _unary("arcsin arccos arctanh asin acos atanh", FLOATS, -0.9, 0.9)
    yield from _unary("arccosh acosh", FLOATS, 1.1, 3)
    yield from _unary("floor ceil trunc rint around round sign negative positive absolute abs fabs square isnan isinf "
                      "isfinite isposinf isneginf signbit iscomplex isreal real imag conj logical_not nan_to_num angle "
                      "deg2rad rad2deg degrees radians reciprocal sinc i0 modf", REAL)
    yield from _unary("frexp spacing", FLOATS, special=False)
    yield from _unary("invert bitwise_not bitwise_invert bitwise_count", INTS + BOOL)
    yield from _unary("invert", ("float32",), special=False)
    yield from _unary("asinh atan", ("float32",))
    yield from _rows("round", (V((3, 4)), 2), (V((4,), "float16"), 1), (V((4,), "int32"), 1), (V((4,), "int32"), -1),
                     (V((4,), "complex64"), 1), (V((3,)), 50))
    yield from _rows("angle", (V((3,), "complex64"), {"deg": True}), (2.0,), (-1,))
    yield from _rows("nan_to_num", (edges(), {"nan": 5.0, "posinf": 1.0, "neginf": -1.0}))


def _binaries():
    both = _MIXES
    complexes = (("complex64", "complex64"), ("complex64", "float32"))
    ints = (("int32", "int32"), ("uint8", "uint8"), ("int8", "uint8"), ("bool", "int32"))
    floats = (("float32", "float32"), ("float32", "int32"), ("int32", "int32"), ("bfloat16", "float32"))
    yield from _binary("add subtract multiply minimum maximum equal not_equal less less_equal greater greater_equal "
                       "logical_and logical_or logical_xor true_divide divide", both + complexes)
    yield from _binary("floor_divide remainder mod fmod divmod", both, tolerance=64)
    yield from _binary("power pow float_power", floats, 0.2, 3, tolerance=64)
    yield from _binary("arctan2 atan2 hypot copysign heaviside nextafter logaddexp logaddexp2 fmin fmax", floats,
                       tolerance=64)
    yield from _binary("bitwise_and bitwise_or bitwise_xor gcd lcm", ints, scalars=(2, 3))
    yield from _binary("left_shift right_shift bitwise_left_shift bitwise_right_shift", (("uint8", "uint8"),) * 2,
                       scalars=(2, 3))
    yield from _rows("ldexp", (V((3,)), V((3,), "int32")), (V((3,), "float16"), 2), (edges(), 3), (V((3,)), V((3,))))
    yield from _rows("power", (V((3,)), 2), (V((3,)), -2), (V((3,), "int32"), 3), (V((3,), "int32"), V((3,), "uint8")),
                     (V((3,)), V((3,), "int32")), (2, V((3,), "uint8")), (V((3,), "complex64"), 2),
                     (V((3,), "complex64"), 0.5), (V((3,), "int32"), -1), (V((3,), "bool"), 2), (0.0, 0), tolerance=64)
    yield from _rows("add", (V((2,)), V((3,))), ([1, 2], V((2,))), (V((2,)), None), ("a", 1),
                     (V((2,), "uint8"), 300), (V((2,), "uint8"), -1))
    for name in ("isclose", "allclose", "array_equal", "array_equiv"):
        yield from _rows(name, (V((3,)), V((3,))), (edges(), edges()), (edges(), edges(), {"equal_nan": True}),
                         (V((3,), "int32"), V((3,), "int32")), (V((2, 3)), V((3,))))
    for name, args in {"reduce": ((V((3, 4)),),), "accumulate": ((V((3, 4)),),), "outer": ((V((3,)), V((2, 2))),)}.items():
        for op in ("add", "multiply", "maximum", "logaddexp", "subtract", "minimum"):
            for a in args:
                yield Case(f"{op}.{name}", a, {}, 256)
        for op in ("bitwise_and", "bitwise_or", "bitwise_xor", "logical_and", "logical_or", "logical_xor"):
            yield Case(f"{op}.{name}", tuple(V(x.shape, "int32") for x in args[0]), {})
            yield Case(f"{op}.{name}", tuple(V(x.shape, "bool") for x in args[0]), {})
    yield from _rows("add.reduce", (V((3, 4)), {"axis": 1, "keepdims": True}), (V((3, 4)), {"axis": None}),
                     (V((3, 4)), {"initial": 2.0}), (V((3, 4)), {"where": V((3, 4), "bool")}))
    yield from _rows("subtract.reduce", (V((3, 4)), {"axis": 1, "keepdims": True}), (V((3, 4)), {"axis": None}))
    yield from _rows("add.at", (V((4,)), np.array([0, 0, 2]), 1.0, {"inplace": False}), (V((4,)), 0, 1.0))
    yield from _rows("subtract.at", (V((4,)), np.array([0, 0, 2]), 1.0, {"inplace": False}))
    yield from _rows("maximum.at", (V((4,)), np.array([0, 0, 2]), 1.0, {"inplace": False}))
    yield from _rows("negative.at", (V((4,)), np.array([0, 0, 2]), {"inplace": False}))
    yield from _rows("add.reduceat", (V((6,)), np.array([0, 2, 4])), (V((3, 6)), np.array([0, 2, 4]), {"axis": 1}))


def _reducing():
    yield from _reductions("sum prod max min amax amin mean all any", ALL, tolerance=256)
    yield from _reductions("var std ptp count_nonzero median nansum nanprod nanmax nanmin nanmean nanvar nanstd nanmedian",
                           REAL[:5] + BOOL, tolerance=512)
    yield from _rows("var", (V((3, 4), "complex64"),), (V((3, 4)), {"ddof": 1}), (V((3,)), {"correction": 1, "ddof": 1}),
                     (V((1,)), {"ddof": 1}), (V((3, 4)), {"where": V((3, 4), "bool"), "axis": 0}), tolerance=256)
    for name in ("sum", "prod", "nansum"):
        yield from _rows(name, (V((3, 4), "int8"),), (V((3, 4), "int8"), {"dtype": "int8"}), (V((3,), "bool"), {"dtype": bool}),
                         (V((3, 4)), {"initial": 2.0}), (V((3, 4)), {"where": V((3, 4), "bool"), "axis": 0}),
                         (V((3, 4)), {"initial": np.ones(2, "float32")}), (V((3,)), {"where": V((3,))}), tolerance=256)
    yield from _rows("sum", (V((3, 4), "int8"), {"promote_integers": False}), (V((3,)), {"out": V(())}))
    for name in ("max", "min"):
        yield from _rows(name, (V((0, 3)),), (V((0, 3)), {"axis": 1}), (V((0,)), {"initial": 1.0}),
                         (V((3, 4)), {"where": V((3, 4), "bool")}),
                         (V((3, 4)), {"where": V((3, 4), "bool"), "initial": 0.0, "axis": 1}))
    for name in ("argmax", "argmin", "nanargmax", "nanargmin"):
        yield from _rows(name, (V((3, 4)),), (V((3, 4)), {"axis": 0}), (V((3, 4), "int32"), {"axis": -1, "keepdims": True}),
                         (edges(),), (V((3, 4)), {"keepdims": True}), (V((0,)),), (V((3,), "bool"),),
                         (np.full((2, 2), np.nan, "float32"), {"axis": 0}), (V((3,)), {"axis": 1}))
    for name in ("cumsum", "cumprod", "nancumsum", "nancumprod"):
        for dtype in ("float32", "int32", "bool", "int8", "bfloat16"):
            yield from _rows(name, (V((2, 3), dtype),), (V((2, 3), dtype), {"axis": 1}), (V((), dtype),), tolerance=64)
        yield from _rows(name, (edges(),), (V((3,)), {"dtype": "int32"}), (V((3,)), {"dtype": bool}), (2.0,),
                         (V((2, 3)), {"axis": 2}))
    for name in ("cumulative_sum", "cumulative_prod"):
        yield from _rows(name, (V((4,)),), (V((4,), "int8"),), (V((2, 3)), {"axis": 1, "include_initial": True}),
                         (V((2, 3)),), (V(()),), tolerance=64)
    w = V((3, 4), low=0.1)
    yield from _rows("average", (V((3, 4)),), (V((3, 4)), {"weights": w}), (V((3, 4)), {"axis": 0, "weights": w[:, 0]}),
                     (V((3, 4)), {"axis": 1, "weights": w, "returned": True}), (V((3, 4), "int32"), {"returned": True}),
                     (V((3, 4)), {"weights": w[:, 0]}), (V((3, 4)), {"axis": (1, 0), "weights": w.T}), tolerance=64)
    a = V((3, 4, 5))
    for name in ("quantile", "nanquantile", "percentile", "nanpercentile"):
        q = np.array([0.0, 0.3, 1.0], "float32") * (100 if "cent" in name else 1)
        for method in ("linear", "lower", "higher", "midpoint", "nearest", "inverted_cdf"):
            yield from _rows(name, (a, q[1], {"method": method}), (a, q, {"axis": 1, "method": method}),
                             (a, q, {"axis": (0, 2), "keepdims": True, "method": method}),
                             (np.where(a > 2, np.nan, a), q, {"axis": 1, "method": method}), tolerance=64)
        yield from _rows(name, (V((4,), "int32"), q), (V((4,), "bfloat16"), q[1]), (a, 0.5, {"method": "bad"}),
                         (V((4,), "complex64"), 0.5), (V((4,)), np.zeros((2, 2), "float32")),
                         (V((5,)), q, {"weights": V((5,), low=0.1), "method": "inverted_cdf"}),
                         (V((3, 5)), q, {"weights": V((5,), low=0.1), "axis": 1, "method": "inverted_cdf"}), tolerance=64)


def _shapes():
    a, b = V((2, 3, 4)), V((2, 3, 4), "int32")
    yield from _rows("reshape", (a, 24), (a, (4, -1)), (a, (-1,)), (a, (2, 12), {"order": "F"}), (a, (5, -1)), (a, (-1, -1)),
                     (a, (2, 2)), (a, (2, 12), {"order": "A"}), (V((0, 3)), (-1, 0)), (V((0, 3)), (3, 0)), (2.0, (1, 1)), grad=True)
    yield from _rows("ravel", (a,), (a, {"order": "F"}), (a, {"order": "K"}), (2.0,))
    yield from _rows("squeeze", (V((1, 3, 1)),), (V((1, 3, 1)), 0), (V((1, 3, 1)), (0, -1)), (V((1, 3)), 1))
    yield from _rows("expand_dims", (a, 0), (a, (0, -1)), (a, 5), (a, (0, 0)))
    for name in ("atleast_1d", "atleast_2d", "atleast_3d"):
        yield from _rows(name, (V(()),), (V((3,)),), (V((2, 3)),), (V((2, 3)), V(())), (2.0,))
    yield from _rows("broadcast_to", (V((3,)), (2, 3)), (V((2, 1)), (4, 2, 3)), (V((3,)), (2,)), (1.0, 3), (V((2, 1)), (2, 1)))
    yield from _rows("broadcast_arrays", (V((3,)), V((2, 1))), (V((3,)),), (V((3,)), V((2,))))
    yield from _rows("broadcast_shapes", ((3,), (2, 1)), (), ((2,), (3,)), (3, (2, 1)))
    yield from _rows("transpose", (a,), (a, (1, 0, 2)), (a, (-1, 0, 1)), (a, (0, 1)), (a, (0, 1, 1)))
    yield from _rows("permute_dims", (a, (1, 0, 2)))
    yield from _rows("matrix_transpose", (a,), (V((3,)),))
    yield from _rows("swapaxes", (a, 0, 2), (a, -1, 0), (a, 3, 0))
    yield from _rows("moveaxis", (a, 0, -1), (a, (0, 1), (1, 2)), (a, 0, (1, 2)), (a, 3, 0))
    yield from _rows("rollaxis", (a, 2), (a, 0, 3), (a, 2, 1), (a, 0, 9))
    for name in ("stack", "concatenate", "concat", "vstack", "hstack", "dstack", "column_stack"):
        x, y = V((2, 3)), V((2, 3), "int32")
        yield from _rows(name, ((x, y),), ([x, x],), ([V((3,)), V((3,), "int8")],), (x,) if name != "concat" else ((x,),),
                         ([1.0, 2],) if name in ("hstack", "vstack", "dstack") else ([],), ((x, V((2, 4))),))
    yield from _rows("stack", ((a, b), {"axis": 1}), ((a, b), {"axis": -1}), ((V((2,)), V((3,))),), (([1], [2]),),
                     ((V((2,)), V((2,), "int8")), {"dtype": "float16"}))
    yield from _rows("concatenate", ((a, b), {"axis": 2}), ((a, b), {"axis": None}), ((V(()), V(())),), (a, {"axis": 1}),
                     ((a, V((2, 3, 1))), {"axis": -1}), ((a, b), {"axis": 3}), ((1.0, 2.0), {"axis": None}))
    yield from _rows("unstack", (a,), (a, {"axis": 2}), (V(()),))
    yield from _rows("block", ([[V((2, 2)), V((2, 1))], [V((1, 2)), V((1, 1))]],), ([1.0, V((3,))],), ((1, 2),), ([[1], 2],), ([],))
    yield from _rows("append", (V((2, 2)), V((2,))), (V((2, 2)), V((1, 2)), {"axis": 0}), (V((2,)), 1))
    for name in ("split", "array_split"):
        yield from _rows(name, (V((6, 2)), 3), (V((6, 2)), [1, 4]), (V((6, 2)), 4), (V((2, 6)), 2, {"axis": 1}),
                         (V((6,)), np.array([2, 3])), (V((6,)), [2, 9]))
    yield from _rows("vsplit", (V((4, 2)), 2))
    yield from _rows("hsplit", (V((4, 2)), 2), (V((4,)), 2))
    yield from _rows("dsplit", (V((2, 2, 4)), 2))
    yield from _rows("tile", (V((2, 3)), 2), (V((3,)), (2, 2)), (V((2, 3)), (2,)), (1.0, 3), (V((2, 3)), ()))
    yield from _rows("repeat", (V((2, 3)), 2), (V((2, 3)), 2, {"axis": 1}), (V((2, 3)), np.array([1, 2, 0]), {"axis": 1}),
                     (V((2, 3)), np.array([1, 2]), {"axis": 0, "total_repeat_length": 5}), (1.0, 3), (V((3,)), 0),
                     (V((3,)), np.array([0, 0, 0])), (V((2, 0)), 2, {"axis": 1}))
    yield from _rows("resize", (V((2, 3)), (3, 3)), (V((2, 3)), 4), (V((0,)), (2, 2)))
    for name in ("flip", "fliplr", "flipud"):
        yield from _rows(name, (V((2, 3)),), *(((V((2, 3, 2)), {"axis": (0, 2)}), (V((3,)), {"axis": 1})) if name == "flip" else ()))
    yield from _rows("rot90", *((V((2, 3)), k) for k in range(-1, 5)), (V((2, 3, 2)), 1, (1, 2)), (V((2, 3)), 1, (0, 0)))
    yield from _rows("roll", (V((2, 3)), 1), (V((2, 3)), 1, 0), (V((2, 3)), (1, 2), (0, 1)), (V((2, 3)), -4, 1), (V((0,)), 1))
    yield from _rows("size", (a,), (a, 0), (a, (0, 1)))
    yield from _rows("shape", (a,), (2.0,))
    yield from _rows("ndim", (a,), (2.0,))


def _creation():
    yield from _rows("array", (1,), (2.0,), (True,), (1j,), ([1, 2],), ([[1.0, 2], [3, 4]],), ([],), ([[], []],),
                     (np.float64(3),), (np.arange(3),), ([True, 2.5],), ([1, 2], {"dtype": "float32"}), (1.5, {"dtype": "int32"}),
                     ([1.5], {"dtype": "int32"}), (None,), ([1, None],), ([[1], [1, 2]],), ("a",), (300, {"dtype": "uint8"}),
                     (-1, {"dtype": "uint8"}), (2, {"ndmin": 2}), (V((3,), "bfloat16"),), (V((2,), "complex64"), {"dtype": "complex64"}),
                     (bytearray(b"ab"),), (range(3),))
    yield from _rows("asarray", (1,), ([1, 2],), (np.arange(3), {"dtype": "float32"}))
    for name in ("zeros", "ones", "empty"):
        yield from _rows(name, (3,), ((2, 3),), ((), "int32"), ((2,), {"dtype": bool}), (2, 3), (-1,), ((2, 3.5),))
        yield from _rows(name + "_like", (V((2, 3)),), (V((2, 3), "int32"), {"dtype": "float32"}), (V((2,)), {"shape": (3,)}),
                         (2.0,), (1,))
    yield from _rows("full", (3, 2.5), ((2, 3), 1, "float32"), ((2, 3), V((3,))), (2, True), (2, [1]))
    yield from _rows("full_like", (V((2, 3)), 2), (V((2, 3), "int32"), 2.7), (V((2, 3)), V((3,))), (1.0, 3))
    yield from _rows("arange", (5,), (2, 5), (1, 10, 3), (0.0, 1.0, 0.25), (5, {"dtype": "float32"}), (5.5,), (3, 0), (5, 0, -2),
                     (np.float32(3),), (2, 5.5), (1, 2, 0.3, {"dtype": "bfloat16"}), (np.array([1, 2]),), (np.uint8(3),), (1j,))
    yield from _rows("linspace", (0, 1), (0, 1, 5), (0, 1, 5, False), (0, 1, 5, {"retstep": True}), (0, 10, 4, {"dtype": "int32"}),
                     (V((3,)), V((3,)), 4), (V((3,)), V((2, 3)), 4, {"axis": 1}), (0, 1, 1), (0, 1, 0), (0, 1, -1),
                     (0, 1, 1, False, True), (1j, 2, 3), (0, 1, 3, {"dtype": "float16"}), tolerance=16)
    yield from _rows("logspace", (0, 2, 5), (0, 2, 5, {"base": 2.0, "endpoint": False}), (0, 2, 5, {"dtype": "int32"}), tolerance=512)
    yield from _rows("geomspace", (1.0, 100.0, 5), (-1.0, -100.0, 3), (1, 256, 9), (V((2,), low=1), V((2,), low=2), 3, {"axis": 1}),
                     tolerance=512)
    for kw in ({}, {"indexing": "ij"}, {"sparse": True}, {"sparse": True, "indexing": "ij"}):
        yield from _rows("meshgrid", (V((3,)), V((2,)), kw), (V((3,)), V((2,)), V((4,)), kw))
    yield from _rows("meshgrid", (V((2, 2)),), (V((2,)), {"copy": False}), (V((2,)), {"indexing": "a"}), ())
    yield from _rows("indices", ((2, 3),), ((2, 3), {"sparse": True}), ((2, 3), {"dtype": "float32"}), ((),))
    yield from _rows("ix_", (V((3,), "int32"), V((2,), "int32")), (V((2, 2), "int32"),), (V((2,), "bool"),), ())
    yield from _rows("eye", (3,), (2, 3), (3, 3, 1), (3, {"k": -1, "dtype": "int32"}), (0,), (-1,), (2, {"dtype": bool}), (3, {"k": 100}))
    yield from _rows("identity", (3,), (2, "int32"))
    yield from _rows("tri", (3,), (3, 4, 1), (3, {"k": -1, "dtype": "int32"}))
    for name in ("tril", "triu"):
        yield from _rows(name, (V((3, 4)),), (V((2, 3, 3), "int32"), 1), (V((3, 3), "bool"), -1), (V((3,)),), grad=True)
        yield from _rows(name + "_indices", (3,), (3, 1), (3, -1, 4), (0,))
        yield from _rows(name + "_indices_from", (V((3, 4)),), (V((3, 4)), 1), (V((3,)),))
    yield from _rows("diag", (V((3,)),), (V((3,)), 1), (V((3,)), -2), (V((3, 4)),), (V((3, 4)), 1), (V((3, 4)), -5), (V((2, 2, 2)),), grad=True)
    yield from _rows("diagflat", (V((2, 2)),), (V((3,)), 1), (V((3,)), -1))
    yield from _rows("diagonal", (V((3, 4)),), (V((2, 3, 4)), 1, 1, 2), (V((3, 3), "bool"),), (V((3,)),), (V((3, 4)), -1))
    yield from _rows("diag_indices", (3,), (3, 3), (-1,))
    yield from _rows("diag_indices_from", (V((3, 3)),), (V((3, 4)),))
    yield from _rows("trace", (V((3, 4)),), (V((3, 4), "int8"), 1), (V((2, 3, 4)), 0, 1, 2), (V((3, 4)), {"dtype": "float16"}), (V((3, 3)), 0, 1, 1))
    yield from _rows("fill_diagonal", (V((3, 3)), 9.0, {"inplace": False}), (V((3, 4)), V((2,)), {"inplace": False}), (V((3, 3)), 1.0))
    yield from _rows("vander", (V((3,)),), (V((3,)), 4), (V((3,), "int32"), 2, True), (V((2, 2)),), tolerance=64)
    yield from _rows("astype", (V((4,), high=9), "int32"), (edges(), "int32"), (edges(), "uint8"), (V((3,)), bool), (V((3,)), "bfloat16"),
                     (V((3,), "complex64"), "float32"), (V((3,), "complex64"), bool), (V((3,)), None), (2.0, "float32"))
    yield from _rows("frombuffer", (np.arange(4, dtype="float32").tobytes(), "float32"),)
    yield from _rows("fromstring", ("1 2 3", {"dtype": "int32", "sep": " "}),)
    yield from _rows("fromfile", ("x",))
    yield from _rows("fromiter", ([1],))
    for name in ("bartlett", "blackman", "hamming", "hanning"):
        yield from _rows(name, (5,), (1,), (0,), (12,), tolerance=64)
    yield from _rows("kaiser", (5, 2.0), (1, 2.0), tolerance=256)
    yield from _rows("float32", (3,), ([1, 2],), (V((2,), "int32"),))
    yield from _rows("int8", (3,), (300,), (2.7,))
    yield from _rows("bool_", (3,), (0.0,))
    yield from _rows("bfloat16", (1.5,))


def _choosing():
    x, y, c = V((2, 3)), V((2, 3), "int32"), V((2, 3), "bool")
    yield from _rows("where", (c, x, y), (c, x, 0.0), (True, x, y), (c, 1, 2), (c, V((3,)), V((2, 1))), (V((2, 3), "int32"), x, y),
                     (c,), (c, {"size": 4}), (c, {"size": 4, "fill_value": -1}), (c, x), (c, x, y, {"size": 2}), (V((0, 3), "bool"), 1.0, 2.0),
                     (c[0], x, V((2, 3), "complex64")), ([True], x, y), grad=False)
    yield from _rows("select", ([c, ~c], [x, y]), ([c], [x], 5.0), ([c[0], c], [1, x], -1), ([], []), ([c], [x, x]))
    yield from _rows("choose", (np.array([0, 1, 1]), [V((3,)), V((3,), "int32")]), (np.array([0, 5]), [V((2,)), V((2,))], {"mode": "wrap"}),
                     (np.array([0, 5]), [V((2,)), V((2,))], {"mode": "clip"}), (np.array([0, 5]), [V((2,)), V((2,))]), (V((2,)), [V((2,))]))
    yield from _rows("clip", (x, 0, 1), (x, -1), (y, {"max": 2}), (y, 0.5, 1.5), (x,), (x, V((3,)), 2), (V((2,), "complex64"), 0, 1), (2.0, 0, 1), ())
    yield from _rows("nonzero", (x,), (c,), (c, {"size": 3}), (c, {"size": 8, "fill_value": 7}), (c, {"size": 8, "fill_value": (7, 8)}),
                     (V(()),), (V((0,)),), (c, {"size": 0}))
    for name in ("flatnonzero", "argwhere"):
        yield from _rows(name, (c,), (c, {"size": 8}), (c, {"size": 8, "fill_value": -1}), (x,))
    yield from _rows("argwhere", (V(()),))
    yield from _rows("extract", (c, x), (c, x, {"size": 4}), (c, x, {"size": 4, "fill_value": 9.0}))
    yield from _rows("compress", (c[0], x, {"axis": 1}), (c[0], V((3,))), (c[0], x), (c[0], x, {"axis": 1, "size": 2}), (c, x),
                     (np.array([True] * 5), V((3,))), (c[0], V((3,)), {"size": 2, "fill_value": 5.0}))
    ind = np.array([[0, 2], [-1, 5]])
    for mode in (None, "fill", "wrap", "clip", "raise", "bad"):
        yield from _rows("take", (V((4,)), ind, {"mode": mode}), (V((4, 3)), ind % 3, {"axis": 1, "mode": mode}))
    yield from _rows("take", (V((4,)), 2), (V((4, 3)), ind), (V((4,), "int32"), ind), (V((0, 3)), ind), (V((4,)), np.zeros((0,), "int32")),
                     (V((4,)), ind, {"fill_value": 7.0}))
    for mode in (None, "clip", "fill", "promise_in_bounds"):
        yield from _rows("take_along_axis", (V((3, 4)), np.array([[0, -1], [2, 3], [1, 1]]), 1, mode),
                         (V((3, 4)), np.array([[0, 1, 2, 0]]), 0, mode), (V((3, 4)), np.array([5, 11]), None, mode))
    yield from _rows("take_along_axis", (V((3, 4)), np.array([[0, 9]]), 1), (V((1, 4)), np.array([[0], [2]]), 1), (V((3, 4)), np.array([0]), 1),
                     (V((3,)), V((3,)), 0), (V((3, 4, 2)), np.array([[[1], [0]]]), 1), (V((0, 4)), np.array([[0, 0, 0, 0]]), 0))
    yield from _rows("put", (V((4,)), np.array([0, 2]), V((2,)), {"inplace": False}), (V((2, 2)), np.array([0, 7]), 1.0, {"mode": "clip", "inplace": False}),
                     (V((2, 2)), np.array([0, 7]), 1.0, {"mode": "wrap", "inplace": False}), (V((4,)), 0, 1.0))
    yield from _rows("place", (V((2, 3)), c, V((2,)), {"inplace": False}), (V((2, 3)), c, 1.0), (V((2, 3)), c[0], 1.0, {"inplace": False}))
    yield from _rows("put_along_axis", (V((3, 4)), np.array([[0], [2], [1]]), 9.0, 1, {"inplace": False}), (V((4,)), np.array([1]), 2.0, None, {"inplace": False}),
                     (V((3, 4)), np.array([[0]]), 1.0, 1))
    for mode in ("raise", "wrap", "clip", "ignore", "bad"):
        yield from _rows("ravel_multi_index", ((np.array([0, 1]), np.array([2, 1])), (2, 3), {"mode": mode}))
    yield from _rows("ravel_multi_index", ((np.array([0, 5]), np.array([2, 1])), (2, 3)), ((np.array([0, 1]),) * 2, (2, 3), {"order": "F"}))
    yield from _rows("unravel_index", (np.array([0, 4, 5]), (2, 3)), (7, (2, 3)), (-9, (2, 3)), (np.array([1, 2]), 6), (np.array([3], "uint8"), (2, 3)))


def _sorting():
    a = V((3, 4))
    for dtype in REAL + COMPLEX:
        yield from _rows("sort", (V((3, 4), dtype),), (V((3, 4), dtype), {"axis": 0, "descending": True}), tolerance=None)
        yield from _rows("argsort", (V((3, 4), dtype),), (V((3, 4), dtype), {"axis": 0, "descending": True}), tolerance=None)
    for name in ("sort", "argsort"):
        yield from _rows(name, (edges(),), (a, {"axis": None}), (V(()),), (a, {"kind": "quicksort"}), (a, {"order": "x"}), (a, {"axis": 2}),
                         (V((6,), "int8"), {"stable": False}))
    yield from _rows("argsort", (a, {"dtype": "int8"}))
    yield from _rows("sort_complex", (V((4,), "complex64"),), (V((4,)),), (V((4,), "int32"),))
    for name in ("partition", "argpartition"):
        yield from _rows(name, (V((7,)), 3), (V((7,), "uint8"), 2), (V((3, 5), "int32"), 1, {"axis": 0}), (V((3,)), 9), (V((3,), "complex64"), 1))
    yield from _rows("lexsort", ((V((5,), "int32"), V((5,), "int8")),), ((V((3,)),),), (V((2, 3)),), ((V(()),),), ((),), ((V((2,)), V((3,))),))
    s = np.sort(V((6,)))
    for side, method in itertools.product(("left", "right"), ("scan", "scan_unrolled", "sort", "compare_all")):
        yield from _rows("searchsorted", (s, V((3, 2)), {"side": side, "method": method}), (s, s, {"side": side, "method": method}),
                         (np.array([1.0, np.nan], "float32"), edges(), {"side": side, "method": method}))
    yield from _rows("searchsorted", (np.sort(V((4,), "int32")), V((3,), "int8")), (s, 0.5), (V((6,)), V((2,)), {"sorter": np.argsort(V((6,)))}),
                     (V((2, 2)), 1.0), (s, 1.0, {"side": "x"}), (s, 1.0, {"method": "x"}), (V((0,)), V((2,))))
    yield from _rows("digitize", (V((5,)), s), (V((5,)), s, True), (V((5,)), s[::-1].copy()), (V((5,)), V((0,))), (V((5,), "int32"), np.array([0, 2])))
    i = V((8,), "int32")
    j = V((8,), "int32", 3)
    for kw in ({}, {"return_index": True, "return_inverse": True, "return_counts": True}, {"size": 5}, {"size": 9, "fill_value": -7},
               {"size": 9, "return_index": True, "return_inverse": True, "return_counts": True}):
        yield from _rows("unique", (i, kw), (V((4, 2), "int32"), {**kw, "axis": 0}), (np.array([1, np.nan, np.nan, 1], "float32"), kw))
    yield from _rows("unique", (V((0,)),), (V((0,)), {"size": 2}), (V((0, 2)), {"axis": 1}), (V((3, 2), "complex64"),), (V((4,), "bool"),),
                     (np.array([np.nan, np.nan], "float32"), {"equal_nan": False}))
    for name in ("unique_all", "unique_counts", "unique_inverse", "unique_values"):
        yield from _rows(name, (i,), (V((2, 3), "int32"),), (i, {"size": 5}))
    for name in ("isin",):
        for method in ("auto", "compare_all", "binary_search", "sort"):
            yield from _rows(name, (V((2, 4), "int32"), j[:3], {"method": method}), (i, j[:3], {"method": method, "invert": True}))
        yield from _rows(name, (i, V((0,), "int32")), (i, j, {"method": "x"}))
    for name in ("intersect1d", "union1d", "setdiff1d", "setxor1d"):
        yield from _rows(name, (i, j), (i, j[:2]), (V((0,), "int32"), j), (V((2, 2)), V((2,))), (i, j, {"size": 3}), (i, j, {"size": 12, "fill_value": 99}),
                         (i, j, {"size": 12}))
    yield from _rows("intersect1d", (i, j, {"return_indices": True}), (i, j, {"return_indices": True, "size": 6}),
                     (np.array([1, 2, 3]), np.array([3, 1, 7]), {"assume_unique": True, "return_indices": True}))


def _linear():
    shapes = (((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 2)), ((2, 3), (3, 4)), ((5, 2, 3), (3, 4)), ((5, 2, 3), (5, 3, 4)), ((1, 2, 3), (5, 3, 4)),
              ((4, 1, 2, 3), (5, 3, 4)), ((2, 3), (5, 3, 4)), ((1, 2, 3), (1, 3, 4)), ((3,), (5, 3, 4)), ((5, 2, 3), (3,)), ((0, 3), (3, 2)),
              ((2, 3), (2, 3)), ((), (3,)), ((4, 2, 3), (5, 3, 4)))
    for s1, s2 in shapes:
        yield Case("matmul", (V(s1), V(s2)), {}, 64, grad=True)
        yield Case("dot", (V(s1), V(s2)), {}, 64, grad=True)
    for d1, d2 in (("int32", "int32"), ("float32", "int32"), ("bool", "bool"), ("bfloat16", "bfloat16"), ("complex64", "float32"), ("int8", "int8")):
        for name in ("matmul", "dot", "inner", "outer", "vdot", "tensordot", *(["kron"] if d1 != "bool" else [])):
            yield Case(name, (V((3, 3), d1), V((3, 3), d2)), {}, 64)
    yield from _rows("matmul", (V((2, 3)), V((3, 4)), {"preferred_element_type": "float16"}), (V((2, 3), "int8"), V((3, 4), "int8"), {"preferred_element_type": "int32"}),
                     ([[1]], [[1]]), tolerance=64)
    yield from _rows("inner", (V((2, 3)), V((4, 3))), (V((3,)), 2.0), tolerance=64)
    yield from _rows("outer", (V((2, 2)), V((3,))), (2.0, V((3,))))
    yield from _rows("tensordot", (V((2, 3, 4)), V((3, 4, 5))), (V((2, 3)), V((3, 2)), 1), (V((2, 3)), V((4, 5)), 0), (V((2, 3)), V((3, 2)), (1, 0)),
                     (V((2, 3, 4)), V((4, 3)), ([1, 2], [1, 0])), (V((2, 3)), V((3, 2)), 3), (V((2, 3)), V((3, 2)), ([1], [0, 1])), (V((2, 3)), V((3, 2)), "a"), tolerance=64)
    yield from _rows("vdot", (V((2, 3), "complex64"), V((3, 2), "complex64")), (V((3,)), V((3,))), tolerance=64)
    yield from _rows("vecdot", (V((2, 3), "complex64"), V((3,), "complex64")), (V((2, 3)), V((2, 4)), {"axis": 0}), (V((2, 3)), V((2, 1, 3))), (V((2, 3)), V((2, 4))), tolerance=64)
    yield from _rows("matvec", (V((4, 2, 3)), V((3,))), (V((2, 3)), V((4, 3))), tolerance=64)
    yield from _rows("vecmat", (V((4, 2)), V((2, 3))), (V((2,), "complex64"), V((4, 2, 3), "complex64")), tolerance=64)
    yield from _rows("kron", (V((2, 2)), V((3,))), (V((2,)), V((3, 1, 2))), (2.0, V((2, 2))))
    yield from _rows("cross", (V((3,)), V((3,))), (V((2, 3)), V((3,))), (V((2, 2)), V((2, 2), "float32", 1)), (V((2,)), V((3,))), (V((3, 4)), V((3, 4)), {"axis": 0}), (V((4,)), V((4,))), tolerance=64)
    for spec, *shapes in (("ij,jk->ik", (2, 3), (3, 4)), ("ij,jk", (2, 3), (3, 4)), ("ii", (3, 3)), ("ii->i", (3, 3)), ("ij->ji", (2, 3)), ("ij->", (2, 3)), ("i,j->ij", (2,), (3,)),
                          ("bij,bjk->bik", (4, 2, 3), (4, 3, 5)), ("...ij,...jk->...ik", (4, 2, 3), (3, 5)), ("ij,kj,kl->il", (2, 3), (4, 3), (4, 5)), ("iij,jk->k", (2, 2, 3), (3, 4)),
                          ("i,i->", (3,), (3,)), ("ij,ij->i", (2, 3), (2, 3)), ("ijk,k", (2, 3, 4), (4,)), ("abc,cd,def->abef", (2, 3, 4), (4, 5), (5, 2, 3)), ("ij,jk->ik", (2, 1), (3, 4)),
                          ("i...->...", (2, 3)), ("ab,b,c->", (2, 3), (3,), (4,)), (" ij , jk -> ik", (2, 3), (3, 2)), ("ii,i->i", (3, 3), (3,)), ("ij,jk->ik", (2, 3), (4, 5)), ("ij->k", (2, 3)), ("i", (2, 3))):
        ops = tuple(V(s, "float32", n) for n, s in enumerate(shapes))
        yield Case("einsum", (spec, *ops), {}, 64, grad=True)
        yield Case("einsum", (spec, *(V(s, "int32", n) for n, s in enumerate(shapes))), {"optimize": False}, 64)
    yield from _rows("einsum", (V((2, 3)), [0, 1], V((3, 4)), [1, 2], [0, 2]), (V((2, 3)), [0, 1], V((3, 4)), [1, 2]), ("ij,jk->ik", V((2, 3), "bfloat16"), V((3, 4), "float32")),
                     ("ij,jk->ik", V((2, 3)), V((3, 4)), {"preferred_element_type": "float16"}), ("ij,j->i", V((2, 3), "bool"), V((3,), "bool")), ("i,i->i", 1.0, 2.0), ("ij->i", [[1]]), tolerance=64)
    for dtype in ("float32", "complex64"):
        a, b = spd(3, dtype), V((2, 4, 4), dtype, 5) + 3 * np.eye(4, dtype=dtype)
        for name in ("cholesky", "inv", "det", "slogdet", "eigvalsh", "svdvals", "matrix_rank", "pinv", "cond", "norm"):
            yield Case(f"linalg.{name}", (a,), {}, 4096, grad=dtype == "float32" and name not in ("matrix_rank", "cond"))
            if name not in ("cholesky", "eigvalsh", "norm"):
                yield Case(f"linalg.{name}", (b,), {}, 4096)
        yield from _rows("linalg.cholesky", (a, {"upper": True}), (V((3, 3), dtype), {"symmetrize_input": False}), tolerance=1024)
        yield from _rows("linalg.solve", (a, V((3,), dtype)), (a, V((3, 2), dtype)), (b, V((4,), dtype)), (b, V((2, 4, 3), dtype)), tolerance=4096, grad=dtype == "float32")
        yield from _rows("linalg.svd", (V((4, 3), dtype), {"compute_uv": False}), (V((2, 3, 4), dtype), {"compute_uv": False}), (a, {"compute_uv": False, "hermitian": True}), tolerance=4096)
        yield from _rows("linalg.qr", (V((4, 3), dtype), {"mode": "r"}), (V((3, 4), dtype), {"mode": "complete"}), (V((4, 3), dtype),), (V((4, 3), dtype), {"mode": "raw"}), tolerance=4096)
        yield from _rows("linalg.lstsq", (V((5, 3), dtype), V((5,), dtype)), (V((5, 3), dtype), V((5, 2), dtype)), (V((2, 3), dtype), V((2,), dtype)), tolerance=8192)
    n = V((3, 4))
    for order in (None, "fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf, "bad", 3):
        yield Case("linalg.norm", (n, order), {"axis": (0, 1)}, 1024)
        yield Case("linalg.norm", (n, order), {"axis": (0, 1), "keepdims": True}, 1024)
        yield Case("linalg.matrix_norm", (V((2, 3, 4)),), {"ord": order or "fro"}, 1024)
    for order in (None, 0, 1, 2, 3, -1, 0.5, np.inf, -np.inf, "inf"):
        yield Case("linalg.norm", (n, order), {"axis": 1}, 1024)
        yield Case("linalg.vector_norm", (n,), {"axis": 0, "keepdims": True, "ord": 2 if order is None else order}, 1024)
    yield from _rows("linalg.norm", (n,), (n, {"keepdims": True}), (V((2, 3, 4)), {"ord": 1}), (V((3,), "int32"),), (V((3,)), {"axis": 1}), tolerance=256)
    yield from _rows("linalg.slogdet", (spd(3), {"method": "qr"}), (spd(3), {"method": "x"}), (np.zeros((3, 3), "float32"),), (V((3, 4)),), (V((1, 1)),), (V((2, 2)),), tolerance=1024)
    yield from _rows("linalg.det", (np.ones((4, 4), "float32"),), (V((2, 2)),), (V((1, 1)),), (V((3, 3)),), (V((4, 4), "int32"),), (V((3, 4)),), (V((3,)),), tolerance=4096)
    yield from _rows("linalg.matrix_power", (V((3, 3)), 0), (V((3, 3)), 1), (V((3, 3)), 5), (spd(3), -2), (V((3, 4)), 2), (V((3,)), 2), tolerance=8192)
    yield from _rows("linalg.cond", *((spd(3), p) for p in (None, 2, -2, 1, -1, "fro", np.inf)), (V((2, 3)), 1), (V((2, 3)), 2), (np.zeros((2, 2), "float32"), -2), tolerance=8192)
    yield from _rows("linalg.eigh", (spd(3), "X"), tolerance=4096)
    yield from _rows("linalg.multi_dot", ([V((2, 3)), V((3, 4)), V((4, 2))],), ([V((3,)), V((3, 4)), V((4,))],), ([V((2, 3)), V((2, 3))],), tolerance=256)
    yield from _rows("linalg.tensorinv", (spd(6).reshape(2, 3, 6), 2), (V((2, 3)), 1), (V((2, 2)), 0), tolerance=8192)
    yield from _rows("linalg.tensorsolve", (spd(6).reshape(2, 3, 6), V((2, 3))), (spd(6).reshape(2, 3, 2, 3), V((2, 3))), tolerance=8192)
    yield from _rows("linalg.cross", (V((3,)), V((3,))), (V((2,)), V((2,))))
    yield from _rows("linalg.outer", (V((3,)), V((2,))), (V((2, 2)), V((2,))))
    yield from _rows("linalg.diagonal", (V((2, 3, 4)),), (V((3, 4)), {"offset": 1}))
    yield from _rows("linalg.trace", (V((2, 3, 3)),), (V((3, 4)), {"offset": -1}))
    yield from _rows("linalg.matrix_transpose", (V((2, 3)),), (V((3,)),))
    yield from _rows("linalg.vecdot", (V((2, 3)), V((2, 3))), tolerance=64)
    yield from _rows("linalg.matmul", (V((2, 3)), V((3, 3))), tolerance=64)
    yield from _rows("linalg.tensordot", (V((2, 3)), V((2, 3))), tolerance=64)
    yield from _rows("linalg.inv", (V((2, 3)),), (spd(3, "float32").astype("int32"),), tolerance=4096)
    yield from _rows("linalg.solve", (V((3,)), V((3,))), (V((2, 3, 3)), V((2, 3))), (spd(2), V((3,))), tolerance=4096)
    yield from _rows("linalg.matrix_rank", (np.ones((3, 3), "float32"),), (V((3,)),), (spd(3), 0.1), (spd(3), 0.1, {"tol": 0.1}))
    yield from _rows("linalg.pinv", (V((3, 2)), {"rtol": 0.1}), (spd(3), {"hermitian": True}), (V((3, 2)), 0.1, {"rcond": 0.1}), (V((0, 2)),), tolerance=8192)


def _fourier():
    for norm in (None, "backward", "ortho", "forward", "bad"):
        for name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft"):
            x = V((3, 8)) if name in ("rfft", "ihfft") else V((3, 8), "complex64")
            yield from _rows(f"fft.{name}", (x, {"norm": norm}), (x, {"n": 5, "norm": norm}), (x, {"n": 11, "axis": 0, "norm": norm}), tolerance=256)
        for name in ("fft2", "ifft2", "rfft2", "irfft2", "fftn", "ifftn", "rfftn", "irfftn"):
            x = V((2, 4, 6)) if name.startswith("r") else V((2, 4, 6), "complex64")
            yield from _rows(f"fft.{name}", (x, {"norm": norm}), (x, {"s": (3, 8), "axes": (0, 2), "norm": norm}), tolerance=512)
    yield from _rows("fft.fft", (V((4,), "int32"),), (V((4,), "bool"),), (V((4,)), {"axis": [0]}), (V((4,)), {"n": 0}), (V((2, 3)), {"axis": 2}), tolerance=64)
    yield from _rows("fft.fftn", (V((2, 2, 3, 2, 2), "complex64"),), (V((2, 3), "complex64"), {"axes": (0, 0)}), (V((2, 3), "complex64"), {"s": (2,), "axes": (0, 1)}), tolerance=512)
    yield from _rows("fft.fft2", (V((2, 3, 4)), {"axes": (0, 1, 2)}))
    for name in ("fftfreq", "rfftfreq"):
        yield from _rows(f"fft.{name}", (5,), (8, 0.5), (4, {"dtype": "float16"}), ([4],))
    for name in ("fftshift", "ifftshift"):
        yield from _rows(f"fft.{name}", (V((5,)),), (V((4, 3)),), (V((4, 3)), 1), (V((4, 3)), (0,)))


def _others():
    a = V((3, 5))
    yield from _rows("diff", (a,), (a, 2), (a, {"axis": 0}), (a, {"prepend": 0.0}), (V((5,), "bool"),), (V((5,), "int32"), {"append": V((2,), "int32"), "prepend": 1}), (a, 0), (a, -1), (2.0,), (V((2,)), 3), grad=True)
    yield from _rows("ediff1d", (V((2, 3)),), (V((4,)), {"to_end": V((2,)), "to_begin": 1.0}), (V((4,), "int32"), {"to_end": 3}), (V((1,)),))
    yield from _rows("gradient", (V((5,)),), (a,), (a, 2.0), (a, 2.0, 3.0), (a, {"axis": 0}), (V((5,)), np.cumsum(V((5,), low=0.5))), (a, {"axis": (0, 1)}), (V((1,)),), (a, 1.0, 2.0, 3.0), (V((5,), "int32"),), (a, {"edge_order": 2}), tolerance=64)
    yield from _rows("trapezoid", (a,), (a, {"dx": 0.5}), (a, V((5,))), (a, {"axis": 0}), (a, V((3, 5))), (V((4,), "int32"),), tolerance=64)
    xp = np.array([0.0, 1, 2, 4], "float32")
    yield from _rows("interp", (V((6,)), xp, V((4,))), (V((6,)), xp, V((4,)), {"left": -1.0, "right": 9}), (V((6,)), xp, V((4,)), {"left": "extrapolate", "right": "extrapolate"}),
                     (V((6,)), xp, V((4,)), {"period": 5.0}), (1.5, xp, V((4,), "complex64")), (V((2,)), xp, V((3,))), (V((2,), "int32"), np.array([0, 3]), np.array([0, 10])), (V((2,)), xp, V((4,)), {"left": "x"}), tolerance=64)
    yield from _rows("unwrap", (np.cumsum(V((6,), low=0, high=5)) % 6,), (V((2, 5)), {"axis": 0}), (V((6,), "int32"), {"period": 4}), (V((6,)), {"discont": 4.0}), tolerance=64)
    for mode in ("constant", "edge", "linear_ramp", "maximum", "mean", "median", "minimum", "reflect", "symmetric", "wrap", "empty"):
        yield from _rows("pad", (V((3, 4)), 2, mode), (V((3, 4)), ((1, 2), (0, 5)), mode), (V((4,), "int32"), (2, 3), mode), (V((1,)), 3, mode), (V((3, 4)), ((1, 0),), mode), tolerance=64)
    yield from _rows("pad", (V((3,)), 1, {"constant_values": 5}), (V((3, 2)), 1, "constant", {"constant_values": ((1, 2), (3, 4))}), (V((3,)), (1, 2), "constant", {"constant_values": (7, 8)}),
                     (V((3,)), 2, "linear_ramp", {"end_values": (5, -4)}), (V((5,)), 2, "mean", {"stat_length": 2}), (V((4,)), 3, "reflect", {"reflect_type": "odd"}), (V((4,)), 6, "symmetric", {"reflect_type": "odd"}),
                     (V((3,)), 1, "bad"), (V((3,)), 1, "edge", {"constant_values": 1}), (V((3,)), -1), (V((3,)), 1.5), (V((0,)), 1, "edge"), (V((3,)), ((1, 2), (3, 4), (5, 6))), (2.0, 1), (V((3, 2)), {0: (1, 2)}), tolerance=64)
    yield from _rows("insert", (V((5,)), 1, 9.0), (V((5,)), np.array([1, 3]), V((2,))), (V((3, 4)), 1, V((3,)), {"axis": 1}), (V((3, 4)), slice(0, 2), V((2, 4)), {"axis": 0}), (V((5,)), -1, 9.0), (V((3, 4)), 2, 5.0), (V((5,)), V((2,)), 1.0))
    yield from _rows("delete", (V((5,)), 1), (V((5,)), -2), (V((5,)), np.array([0, 3])), (V((3, 4)), 1, {"axis": 1}), (V((5,)), slice(1, 4)), (V((5,)), np.array([True, False, True, False, False])),
                     (V((5,)), np.array([0, 3]), {"assume_unique_indices": True}), (V((5,)), 9), (V((5,)), np.array([True])), (V((5,)), V((2,))))
    yield from _rows("trim_zeros", (np.array([0, 0, 1, 2, 0]),), (np.array([0, 1, 0]), {"trim": "f"}), (np.zeros(3),), (np.array([[0, 0], [0, 1.0]]),), (np.array([[0, 0], [0, 1.0]]), {"axis": 0}))
    for order in ("big", "little", "x"):
        yield from _rows("packbits", (V((11,), "bool"), {"bitorder": order}), (V((3, 9), "uint8"), {"axis": 0, "bitorder": order}))
        yield from _rows("unpackbits", (V((3,), "uint8"), {"bitorder": order}), (V((3, 2), "uint8"), {"axis": 0, "count": 10, "bitorder": order}), (V((3,), "uint8"), {"count": 30}))
    yield from _rows("packbits", (V((3,)),))
    for name in ("convolve", "correlate"):
        for mode in ("full", "same", "valid", "x"):
            yield from _rows(name, (V((6,)), V((3,)), {"mode": mode}), (V((3,)), V((6,), "int32"), {"mode": mode}), (V((5,), "complex64"), V((2,), "complex64"), {"mode": mode}), tolerance=64)
        yield from _rows(name, (V((2, 2)), V((2,))), (V((0,)), V((2,))), (V((3,), "int32"), V((2,), "int32"), {"preferred_element_type": "int32"}))
    yield from _rows("bincount", (np.array([0, 1, 1, 3]),), (np.array([0, 1, 1, 3]), V((4,))), (np.array([0, 1]), {"minlength": 5}), (np.array([0, 1, 9]), {"length": 4}), (V((3,)),), (np.array([[1]]),), (np.array([], "int32"),), (np.array([True, False]),), (np.array([-1, 1]),))
    h = V((20,))
    for kw in ({}, {"density": True}, {"range": (-1.0, 1.0)}, {"weights": V((20,), low=0)}, {"bins": 4}, {"bins": np.array([-3.0, 0, 3])}):
        yield Case("histogram", (h,), kw, 64)
        if "weights" not in kw and "range" not in kw:
            yield Case("histogram2d", (h, V((20,), "float32", 9)), {k: v for k, v in kw.items()}, 64)
    yield from _rows("histogram", (np.ones(3, "float32"),), (V((5,), "int32"), {"bins": 3}), (h, {"bins": "auto"}), (h, {"weights": V((3,))}), tolerance=64)
    yield from _rows("histogram_bin_edges", (h,), (h, {"bins": 3, "range": (0, 1)}), (h, {"bins": np.array([1, 2])}), tolerance=64)
    yield from _rows("histogramdd", (V((20, 2)),), (V((20, 2)), {"bins": [3, 4], "density": True}), (V((20, 3)), {"bins": 2, "weights": V((20,), low=0)}), (V((20, 2)), {"bins": [3]}), tolerance=64)
    for kw in ({}, {"rowvar": False}, {"bias": True}, {"ddof": 0}, {"fweights": np.array([1, 2, 1, 1, 3])}, {"aweights": V((5,), low=0.1)}, {"dtype": "float16"}, {"dtype": "int32"}):
        yield Case("cov", (a if "rowvar" not in kw else a.T,), kw, 256)
        if set(kw) <= {"rowvar", "dtype"}:
            yield Case("corrcoef", (a,), kw, 256)
    yield from _rows("cov", (V((5,)),), (V((5,)), V((5,))), (V((2, 3, 4)),), (V((3, 4), "complex64"),), (V((0, 3)),), (V((3, 0)),), (a, {"fweights": V((5,))}), tolerance=256)
    yield from _rows("corrcoef", (V((5,)),), (V((5,)), V((5,))), (V((3, 4), "complex64"),), tolerance=256)
    p, q = V((4,)), V((3,), "float32", 1)
    for name in ("polyadd", "polysub", "polymul", "polydiv"):
        yield from _rows(name, (p, q), (q, p), (V((3,), "int32"), V((2,), "int32")), tolerance=256)
    yield from _rows("polymul", (np.array([0.0, 1, 2]), np.array([0.0, 3]), {"trim_leading_zeros": True}), tolerance=64)
    yield from _rows("polydiv", (p, q, {"trim_leading_zeros": True}), tolerance=256)
    yield from _rows("polyval", (p, 2.0), (p, V((2, 3))), (V((3, 2)), V((2,))), (V((3,), "int32"), 2), tolerance=256, grad=True)
    yield from _rows("polyint", (p,), (p, 2), (p, 2, {"k": np.array([1.0, 2.0])}), (p, 0), (p, -1), (V((3,), "int32"),), (p, 2, {"k": 3}), tolerance=64)
    yield from _rows("polyder", (p,), (p, 2), (p, 0), (p, -1), (V((3,), "int32"),), (V((1,)),), tolerance=64)
    yield from _rows("poly", (q,), (V((2, 2)),), (V((0,)),), (V((2, 3)),), tolerance=1024)
    yield from _rows("roots", (p,), (np.array([0.0, 1.0, -2.0]),), (np.array([0.0, 1.0, -2.0]), {"strip_zeros": False}), (np.zeros(3),), (V((1,)),), tolerance=4096)
    yield from _rows("polyfit", (V((6,)), V((6,), "float32", 1), 2), (V((6,)), V((6, 2)), 1), (V((6,)), V((6,), "float32", 1), 1, {"full": True}), (V((6,)), V((6,), "float32", 1), 1, {"cov": True}),
                     (V((6,)), V((6,), "float32", 1), 1, {"w": V((6,), low=0.1)}), (V((6,)), V((6,)), -1), (V((6,)), V((5,)), 1), (V((6,)), V((6,), "float32", 1), 1, {"cov": "unscaled"}), tolerance=32768)
    yield from _rows("apply_along_axis", (M(lambda m: m.cumsum, "cumsum"), 0, V((3, 4))), (M(lambda m: m.sum, "sum"), 1, V((2, 3, 4))), (M(lambda m: lambda v: v[:2], "cut"), -1, V((3, 4))), tolerance=64)
    yield from _rows("apply_over_axes", (M(lambda m: m.sum, "sum"), V((2, 3, 4)), [0, 2]), tolerance=64)
    yield from _rows("piecewise", (V((5,)), [V((5,)) < 0, V((5,)) > 1], [-1, 1]), (V((5,)), [V((5,)) < 0], [M(lambda m: m.square, "square"), 3.0]), (V((5,)), [V((5,)) < 0], [1, 2, 3]))
    yield from _rows("issubdtype", ("float32", M(lambda m: m.floating, "floating")), (bf16, M(lambda m: m.floating, "floating")), ("int8", M(lambda m: m.inexact, "inexact")))
    yield from _rows("isdtype", ("float32", "real floating"), ("int8", ("bool", "integral")))
    yield from _rows("result_type", ("float32", "int32"), (V((2,), "bfloat16"), 1.0), (1, 2.0), ("int8", "uint8"))
    yield from _rows("promote_types", ("float32", "bfloat16"), ("int32", "uint32"))
    yield from _rows("isscalar", (2.0,), (V(()),), (V((1,)),), ("a",))
    for name in ("iscomplexobj", "isrealobj"):
        yield from _rows(name, (V((2,), "complex64"),), (2.0,), (1j,), (V((2,)),))


def cases() -> list[Case]:
    """The whole table. The first two cases of each name with float arguments are marked for derivatives too."""
    groups = (_elementwise, _binaries, _reducing, _shapes, _creation, _choosing, _sorting, _linear, _fourier, _others)
    out, marked = [], collections.Counter()
    for case in (case for group in groups for case in group()):
        if not case.grad and marked[case.name] < 2 and _has_floats(case):
            case = case._replace(grad=True)
        marked[case.name] += case.grad
        out.append(case)
    return out


def _has_floats(case: Case) -> bool:
    """Whether some argument is a float32 array of different finite numbers."""
    arrays = [a for a in case.args if isinstance(a, np.ndarray) and a.dtype == np.float32 and a.size]
    return bool(arrays) and all(np.isfinite(a).all() and len(np.unique(a)) == a.size for a in arrays)


# ---- comparing -------------------------------------------------------------------------------------------------------
def call(module: Any, case: Case, wrap: Any) -> Any:
    """The result of a case in one module, or the exception it raises. `wrap` turns numpy arguments into arrays."""
    import warnings

    fun = module
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            for part in case.name.split("."):
                fun = getattr(fun, part)
            return fun(*[given(a, module, wrap) for a in case.args], **{k: given(v, module, wrap) for k, v in case.kwargs.items()})
        except Exception as error:
            return error


def given(x: Any, module: Any, wrap: Any) -> Any:
    """An argument of a case as the module takes it."""
    if isinstance(x, M):
        return x.make(module)
    if isinstance(x, np.ndarray):
        return wrap(x)
    if isinstance(x, (list, tuple)) and any(isinstance(i, (np.ndarray, M)) for i in x):
        return type(x)(given(i, module, wrap) for i in x)
    return x


def leaves(x: Any) -> list[Any]:
    """Arrays and scalars of nested tuples and lists."""
    return [leaf for i in x for leaf in leaves(i)] if isinstance(x, (list, tuple)) else [x]


#: Weak types that jax loses on the way, for no reason that a user could know.
LOSES_WEAK_TYPE = ("hypot", "heaviside")


def difference(ours: Any, theirs: Any, tolerance: float | None, weak: bool = True) -> str | None:
    """What is different between two results, or None."""
    if isinstance(theirs, Exception):
        if not isinstance(ours, Exception):
            return f"no error; jax raises {theirs!r:.150}"
        expected = next(t for t in type(theirs).__mro__ if t.__module__ == "builtins")
        same = isinstance(ours, expected)
        return None if same else f"raises {ours!r:.200}; jax raises {theirs!r:.150}"
    if isinstance(ours, Exception):
        return f"raises {ours!r:.300}"
    a, b = leaves(ours), leaves(theirs)
    if len(a) != len(b):
        return f"{len(a)} results; jax has {len(b)}"
    return next((d for d in map(_leaf_difference, a, b, itertools.repeat((tolerance, weak))) if d), None)


def _leaf_difference(a: Any, b: Any, how: tuple[float | None, bool]) -> str | None:
    tolerance, weak = how
    if not hasattr(b, "weak_type"):
        return None if a == b else f"{a!r} is not {b!r}"
    if not hasattr(a, "weak_type"):
        return f"not an array: {type(a)}"
    for what in ("shape", "dtype", "weak_type"):
        if getattr(a, what) != getattr(b, what) and (what != "weak_type" or (weak and b.dtype != bool)):
            return f"{what} {getattr(a, what)}; jax has {getattr(b, what)}"
    x, y = np.asarray(a), np.asarray(b)
    if x.dtype.kind in "fcV" and tolerance is not None:
        bound = tolerance * float(ml_dtypes.finfo(x.dtype).eps)
        wide = np.complex128 if x.dtype.kind == "c" else np.float64
        x, y = x.astype(wide), y.astype(wide)
        scale = np.abs(y[np.isfinite(y)]).max(initial=0)
        with np.errstate(invalid="ignore"):
            same = np.isclose(x, y, rtol=bound, atol=bound * max(scale, 1e-30), equal_nan=True)
    else:
        same = x == y
    return None if same.all() else f"values {x[~same][:3]}; jax has {y[~same][:3]}"
