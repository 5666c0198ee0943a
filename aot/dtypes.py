"""Element types: the promotion lattice with weak types, 32/64-bit canonicalization, and typed random keys.

A *weak* type is the type of a Python scalar: it decides the kind of a result (integer, float, complex) but not its
width, so `x_bf16 * 2.0` stays bfloat16.  Throughout, a type is a pair `(dtype, weak)`; bool is never weak.

The lattice (an edge goes from a type to what it may become; the join of two types is their promotion):

    bool -> int* -> u8 -> u16 -> u32 -> u64 -> float* -> bf16, f16 -> f32 -> f64
                    i8 -> i16 -> i32 -> i64 ->           float* -> complex* -> c64 -> c128      f32 -> c64, f64 -> c128
    u8 -> i16, u16 -> i32, u32 -> i64            int* -> 1, 2 and 4-bit integers      float* -> 4, 6 and 8-bit floats

where a star marks a weak type, and with x64 off u32 -> i32 replaces u32 -> i64.  The narrow types at the right lead
nowhere: mixing them with others is an error.
"""
from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import ml_dtypes
import numpy as np

from aot.config import config

finfo, iinfo = ml_dtypes.finfo, ml_dtypes.iinfo

_NARROW_INTS = ("int1", "int2", "int4", "uint1", "uint2", "uint4")
_NARROW_FLOATS = ("float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz",
                  "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu")

# Scalar types under their public names: `dtypes.bfloat16`, `dtypes.int4`, `dtypes.float8_e4m3fn`, ...
bfloat16 = ml_dtypes.bfloat16
int2, int4, uint2, uint4 = ml_dtypes.int2, ml_dtypes.int4, ml_dtypes.uint2, ml_dtypes.uint4
float8_e3m4, float8_e4m3, float8_e8m0fnu = ml_dtypes.float8_e3m4, ml_dtypes.float8_e4m3, ml_dtypes.float8_e8m0fnu
float8_e4m3b11fnuz, float8_e4m3fn = ml_dtypes.float8_e4m3b11fnuz, ml_dtypes.float8_e4m3fn
float8_e4m3fnuz, float8_e5m2 = ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2
float8_e5m2fnuz, float4_e2m1fn = ml_dtypes.float8_e5m2fnuz, ml_dtypes.float4_e2m1fn
float6_e2m3fn, float6_e3m2fn = ml_dtypes.float6_e2m3fn, ml_dtypes.float6_e3m2fn

#: The type of cotangents of integers and booleans: no information, zero bytes an element.
float0 = np.dtype([("float0", np.void, 0)])


def _named(names: Iterable[str]) -> list[np.dtype]:
    """ml_dtypes of older versions lack the newest narrow types; those are then simply absent."""
    return [np.dtype(getattr(ml_dtypes, n)) for n in names if hasattr(ml_dtypes, n)]


BOOL = np.dtype(np.bool_)
UNSIGNED = [np.dtype(f"uint{n}") for n in (8, 16, 32, 64)]
SIGNED = [np.dtype(f"int{n}") for n in (8, 16, 32, 64)]
NARROW_INTS, NARROW_FLOATS = _named(_NARROW_INTS), _named(_NARROW_FLOATS)
BF16, F16, F32, F64 = np.dtype(bfloat16), np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.float64)
C64, C128 = np.dtype(np.complex64), np.dtype(np.complex128)
INTEGERS = [*SIGNED, *UNSIGNED, *NARROW_INTS]
FLOATS = [BF16, F16, F32, F64, *NARROW_FLOATS]
COMPLEX = [C64, C128]
#: Every dtype that arrays can have, apart from extended ones (random keys).
ALL = [BOOL, *INTEGERS, *FLOATS, *COMPLEX]
_SUPPORTED = frozenset(ALL) | {float0}
_INTEGERS, _FLOATS, _COMPLEX = frozenset(INTEGERS), frozenset(FLOATS), frozenset(COMPLEX)

_SCALAR_DTYPE: dict[type, np.dtype] = {bool: BOOL, int: SIGNED[3], float: F64, complex: C128}
_NARROWED = {F64: F32, C128: C64, SIGNED[3]: SIGNED[2], UNSIGNED[3]: UNSIGNED[2]}


class TypePromotionError(ValueError):
    """Two dtypes have no common type to promote to; cast one of them explicitly."""


class NoPromotionError(TypeError, ValueError):
    """An operand's dtype (a random key, float0) is no number: wrong type for arithmetic, wrong value for result_type."""


# ---- extended dtypes -------------------------------------------------------------------------------------------------

class extended(np.generic):
    """Abstract scalar type of dtypes that numpy does not know; for `issubdtype`."""


class prng_key(extended):
    """Abstract scalar type of typed random keys: `issubdtype(key.dtype, prng_key)`."""


class ExtendedDType:
    """Base of dtype objects that stand beside `np.dtype`.  Elements are arrays of another dtype underneath."""

    type: type = extended


class KeyDType(ExtendedDType):
    """dtype of an array of random keys; prints as `key<fry>`.

    `impl` declares the generator: `.name`, `.tag` (the short name in brackets) and `.key_shape` (the trailing uint32
    dimensions of one key).
    """

    __slots__ = ("impl", "name", "_hash")
    type = prng_key
    kind = "key"

    def __init__(self, impl: Any):
        self.impl = impl
        self.name = f"key<{impl.tag}>"
        self._hash = hash((KeyDType, impl.name))

    @property
    def itemsize(self) -> int:
        """Bytes of one key."""
        return int(np.prod(self.impl.key_shape, dtype=int)) * 4

    def __eq__(self, other: object) -> bool:
        return self is other or (type(other) is KeyDType and self.impl.name == other.impl.name)

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> Any:
        return _key_dtype, (self.impl.name,)


def _key_dtype(name: str) -> KeyDType:
    from aot.ops.random import IMPLS
    return IMPLS[name].dtype


def is_extended(dtype: Any) -> bool:
    """Whether `dtype` is an extended dtype object, such as a key dtype."""
    return isinstance(dtype, ExtendedDType)


# ---- canonicalization ------------------------------------------------------------------------------------------------

_canonical: tuple[dict[Any, Any], dict[Any, Any]] = ({}, {})     # indexed by enable_x64


def canonicalize_dtype(dtype: Any, allow_extended_dtype: bool = False) -> Any:
    """`dtype` (anything `np.dtype` accepts, or None for the default float) with 64 bits narrowed unless x64 is on."""
    table = _canonical[config.enable_x64]
    try:
        return table[dtype]
    except (KeyError, TypeError):
        return _canonicalize(dtype, table, allow_extended_dtype)


def _canonicalize(dtype: Any, table: dict[Any, Any], allow_extended: bool) -> Any:
    if isinstance(dtype, ExtendedDType):
        if allow_extended:
            return dtype
        raise ValueError(f"a plain dtype is needed here, got the extended dtype {dtype}")
    exact = as_dtype(F64 if dtype is None else dtype)
    result = exact if config.enable_x64 else _NARROWED.get(exact, exact)
    # An unhashable spelling (a structured description) is rare enough to be worked out again each time.
    if dtype.__hash__ is not None:
        table[dtype] = result
    return result


def as_dtype(x: Any) -> Any:
    """`np.dtype(x)` that also passes extended dtypes through and knows the names of ml_dtypes."""
    if isinstance(x, (np.dtype, ExtendedDType)):
        return x
    if isinstance(x, type) and x in _SCALAR_DTYPE:
        return _SCALAR_DTYPE[x]
    try:
        return np.dtype(x)
    except TypeError:
        if isinstance(x, str) and hasattr(ml_dtypes, x):
            return np.dtype(getattr(ml_dtypes, x))
        raise


def check_user_dtype_supported(dtype: Any, name: str | None = None) -> Any:
    """The canonical form of a dtype that a user wrote in a call of `name`.

    Warns (UserWarning), raises or keeps it, as `config.explicit_x64_dtypes` says, when it asks for 64 bits and x64 is
    off.  Python's own `int`, `float`, `complex` mean "the default width" and never warn.  Raises TypeError for dtypes
    that arrays cannot have, and ValueError for None.
    """
    if dtype is None:
        raise ValueError("a dtype is needed here, got None")
    if isinstance(dtype, ExtendedDType):
        return dtype
    exact = as_dtype(dtype)
    where = f" in {name}" if name else ""
    if exact not in _SUPPORTED:
        raise TypeError(f"arrays hold bools and numbers, not {dtype}{where}; use an integer, float, complex or bool")
    if exact not in _NARROWED or config.enable_x64 or (isinstance(dtype, type) and dtype in _SCALAR_DTYPE):
        return canonicalize_dtype(exact)
    return _explicit_64(exact, where)


def _explicit_64(exact: np.dtype, where: str) -> np.dtype:
    mode, narrow = config.explicit_x64_dtypes, _NARROWED[exact]
    if mode == "allow":
        return exact
    message = (f"dtype {exact} was requested{where}, but 64-bit dtypes are off, so {narrow} is used. "
               "To enable them: aot.config.update('enable_x64', True), or set AOT_ENABLE_X64=1 "
               "(JAX_ENABLE_X64=1 works too).")
    if mode == "error":
        raise ValueError(message.replace("so", "and would become").replace(" is used", ""))
    import warnings

    warnings.warn(message, UserWarning, stacklevel=_stack_level())
    return narrow


def _stack_level() -> int:
    """How many frames up `warnings.warn` has to look from its caller to land in the user's file."""
    from aot.source import frames_to_user

    return frames_to_user() - 1


def default_float_dtype() -> np.dtype:
    """float32, or float64 under x64."""
    return F64 if config.enable_x64 else F32


def default_int_dtype() -> np.dtype:
    """int32, or int64 under x64."""
    return SIGNED[3] if config.enable_x64 else SIGNED[2]


def default_uint_dtype() -> np.dtype:
    """uint32, or uint64 under x64."""
    return UNSIGNED[3] if config.enable_x64 else UNSIGNED[2]


def default_complex_dtype() -> np.dtype:
    """complex64, or complex128 under x64."""
    return C128 if config.enable_x64 else C64


# ---- the lattice -----------------------------------------------------------------------------------------------------

_INT, _FLOAT, _CPLX = "int*", "float*", "complex*"      # the weak types
_WEAK_NODE = {"i": _INT, "u": _INT, "f": _FLOAT, "c": _CPLX}
_WEAK_DTYPE = {_INT: SIGNED[3], _FLOAT: F64, _CPLX: C128}


def _edges(x64: bool, strict: bool) -> dict[Any, list[Any]]:
    if strict:      # only Python scalars adapt; two arrays must already agree
        return {_INT: [*INTEGERS, _FLOAT], _FLOAT: [*FLOATS, _CPLX], _CPLX: list(COMPLEX), **{d: [] for d in ALL}}
    u, i = UNSIGNED, SIGNED
    chains = {u[0]: [i[1], u[1]], u[1]: [i[2], u[2]], u[2]: [i[3] if x64 else i[2], u[3]], u[3]: [_FLOAT],
              i[0]: [i[1]], i[1]: [i[2]], i[2]: [i[3]], i[3]: [_FLOAT],
              BF16: [F32], F16: [F32], F32: [F64, C64], F64: [C128], C64: [C128], C128: []}
    return {BOOL: [_INT], _INT: [u[0], i[0], *NARROW_INTS], _FLOAT: [BF16, F16, *NARROW_FLOATS, _CPLX], _CPLX: [C64],
            **chains, **{d: [] for d in (*NARROW_INTS, *NARROW_FLOATS)}}


def _upper_bounds(edges: dict[Any, list[Any]]) -> dict[Any, frozenset]:
    def above(node: Any) -> set:
        return {node}.union(*map(above, edges[node])) if edges[node] else {node}

    return {node: frozenset(above(node)) for node in edges}


Mode = tuple[bool, str]     # enable_x64, numpy_dtype_promotion
_bounds: dict[Mode, dict[Any, frozenset]] = {}


def _mode() -> Mode:
    return config.enable_x64, config.numpy_dtype_promotion


def _join(nodes: set, mode: Mode) -> Any:
    """The least node above all of `nodes`: the common bound whose own bounds are all the common ones."""
    if mode not in _bounds:
        _bounds[mode] = _upper_bounds(_edges(mode[0], mode[1] == "strict"))
    bounds = _bounds[mode]
    common = frozenset.intersection(*[bounds[n] for n in nodes])
    for node in common:
        if bounds[node] == common:
            return node
    raise TypePromotionError(_no_path(nodes, mode[1] == "strict"))


def _no_path(nodes: set, strict: bool) -> str:
    names = ", ".join(sorted(map(str, nodes)))
    why = ""
    if strict:
        why = " under numpy_dtype_promotion='strict', which only lets Python scalars adapt"
    elif nodes & (set(NARROW_FLOATS) | set(NARROW_INTS)):
        why = ": 1 to 8-bit floats and 1 to 4-bit integers are never promoted implicitly"
    return (f"no common dtype for {names}{why}. To fix this: convert one side explicitly, for example "
            "x.astype('float32')" + (", or set the option to 'standard'." if strict else "."))


def _node(dtype: np.dtype, weak: bool) -> Any:
    """The lattice node of a type.  Raises NoPromotionError for dtypes that take no part in promotion."""
    if dtype in _COMPLEX:
        return _CPLX if weak else dtype
    if dtype in _FLOATS:
        return _FLOAT if weak else dtype
    if dtype in _INTEGERS:
        return _INT if weak else dtype
    if dtype == BOOL:
        return dtype
    hint = "; hint: random.key_data(key) gives the words of a key" if isinstance(dtype, KeyDType) else ""
    raise NoPromotionError(f"dtype {dtype} does not take part in arithmetic and dtype promotion{hint}")


Typed = tuple[Any, bool]
_results: dict[Mode, dict[tuple[Typed, ...], Typed]] = {}


def lattice_result(types: tuple[Typed, ...]) -> Typed:
    """Join of canonical `(dtype, weak)` pairs, as a canonical pair.  Cached: one dict lookup on the tracing path.

    A weak array that a cast made narrow (weak bfloat16) keeps its width here; `result_type` widens it.
    """
    mode = _mode()
    try:
        return _results[mode][types]
    except KeyError:
        return _results.setdefault(mode, {}).setdefault(types, _lattice_result(types, mode))


def _lattice_result(types: tuple[Typed, ...], mode: Mode) -> Typed:
    first, weak = types[0][0], all(w for _, w in types)
    if len(types) == 1 or (not weak and all(dtype == first for dtype, _ in types)):
        if not weak:                        # the one way for keys, and for 64 bits that are off now, to get through
            return first, False
        result = first
    elif any(canonicalize_dtype(dtype, True) != dtype for dtype, _ in types):
        return lattice_result(tuple([(canonicalize_dtype(dtype, True), w) for dtype, w in types]))
    elif weak and mode[1] != "strict":
        result = _strong(_join({_node(dtype, False) for dtype, _ in types}, mode))
    else:
        node = _join({_node(*t) for t in types}, mode)
        result, weak = _strong(node), isinstance(node, str)
    return canonicalize_dtype(result, allow_extended_dtype=True), weak and result != BOOL


def _strong(node: Any) -> np.dtype:
    return _WEAK_DTYPE[node] if isinstance(node, str) else node


def promote_types(a: Any, b: Any) -> np.dtype:
    """The dtype that operands of dtypes `a` and `b` combine to; `int`, `float`, `complex` stand for weak scalars."""
    nodes = {_promotable(a), _promotable(b)}
    return _strong(nodes.pop() if len(nodes) == 1 else _join(nodes, _mode()))


def _promotable(x: Any) -> Any:
    if isinstance(x, type) and x in _SCALAR_DTYPE:
        return _node(_SCALAR_DTYPE[x], True)
    dtype = as_dtype(x)
    return dtype if isinstance(dtype, ExtendedDType) else _node(dtype, False)


def lattice_result_type(*args: Any) -> Typed:
    """`(dtype, weak)` of combining arrays, scalars or dtypes."""
    return lattice_result(tuple([dtype_and_weak(a) for a in args]))


def result_type(*args: Any, return_weak_type_flag: bool = False) -> Any:
    """The dtype of an operation on `args` (arrays, scalars, dtypes), and whether it is weak when asked for.

    Raises ValueError without arguments and TypePromotionError where there is no common dtype.
    """
    if not args:
        raise ValueError("result_type needs at least one array or dtype")
    dtype, weak = lattice_result_type(*[default_float_dtype() if a is None else a for a in args])
    if weak:
        dtype = default_uint_dtype() if dtype.kind == "u" else canonicalize_dtype(_WEAK_DTYPE[_node(dtype, True)])
    if len(args) > 1:
        dtype = canonicalize_dtype(dtype, allow_extended_dtype=True)
    return (dtype, weak) if return_weak_type_flag else dtype


def dtype_and_weak(x: Any) -> Typed:
    """Canonical `(dtype, weak)` of an array, tracer, Python scalar, scalar type, dtype or dtype name."""
    kind = type(x)
    if kind in _SCALAR_DTYPE:
        return canonicalize_dtype(_SCALAR_DTYPE[kind]), kind is not bool
    if isinstance(x, type) and x in _SCALAR_DTYPE:
        return canonicalize_dtype(_SCALAR_DTYPE[x]), x is not bool
    return dtype(x), bool(getattr(x, "weak_type", False))


def dtype(x: Any) -> Any:
    """The canonical dtype of an array, scalar, dtype, dtype name or scalar type.  Raises TypeError for others."""
    kind = type(x)
    if kind in _SCALAR_DTYPE:
        return canonicalize_dtype(_SCALAR_DTYPE[kind])
    if x is None:
        raise ValueError("None has no dtype")
    if isinstance(x, (str, type, np.dtype)):
        return check_user_dtype_supported(x, "dtype")
    if isinstance(x, ExtendedDType):
        return x
    found = getattr(x, "dtype", None)
    if found is not None:       # arrays made while x64 was on stay what they are
        return found if hasattr(x, "aval") else canonicalize_dtype(found, allow_extended_dtype=True)
    for scalar in (bool, int, float, complex):      # subclasses, such as an IntEnum member
        if isinstance(x, scalar):
            return canonicalize_dtype(_SCALAR_DTYPE[scalar])
    raise TypeError(f"{x!r} of type {kind.__name__} has no dtype: it is neither an array, a number nor a dtype")


# ---- questions about dtypes ------------------------------------------------------------------------------------------

def short_name(dtype: Any) -> str:
    """`float32` -> 'f32', `bfloat16` -> 'bf16', `uint8` -> 'u8', `bool` -> 'bool', keys -> 'key<fry>'."""
    name = _short.get(dtype)
    if name is None:
        name = getattr(dtype, "name", str(dtype))
        for long, short in (("complex", "c"), ("float", "f"), ("uint", "u"), ("int", "i")):
            name = name.replace(long, short)
        _short[dtype] = name
    return name


_short: dict[Any, str] = {float0: "float0"}


def itemsize_bits(dtype: Any) -> int:
    """Bits one element takes on a device: 4 for int4, 8 for bool and float8, 64 for complex64."""
    dt = as_dtype(dtype)
    if isinstance(dt, ExtendedDType):
        raise ValueError(f"the extended dtype {dt} has no fixed size in bits")
    if dt in NARROW_INTS:
        return int(dt.name.lstrip("uint"))
    if dt in NARROW_FLOATS:
        return int(dt.name[len("float")])
    return dt.itemsize * 8


_ABSTRACT = {np.bool_: (BOOL,), np.signedinteger: tuple(d for d in INTEGERS if d.name[0] == "i"),
             np.unsignedinteger: tuple(d for d in INTEGERS if d.name[0] == "u"), np.integer: tuple(INTEGERS),
             np.floating: tuple(FLOATS), np.complexfloating: tuple(COMPLEX), np.inexact: (*FLOATS, *COMPLEX),
             np.number: (*INTEGERS, *FLOATS, *COMPLEX)}
_subdtype: dict[tuple[Any, Any], bool] = {}


def issubdtype(a: Any, b: Any) -> bool:
    """Whether `a` is, or is below, `b` in the hierarchy of scalar types; knows ml_dtypes, `extended`, `prng_key`.

    The narrow types count as what they are: `issubdtype(bfloat16, np.floating)` holds, unlike in numpy.
    """
    try:
        return _subdtype[a, b]
    except (KeyError, TypeError):
        result = _issubdtype(a, b)
    if a.__hash__ is not None and b.__hash__ is not None:
        _subdtype[a, b] = result
    return result


def _issubdtype(a: Any, b: Any) -> bool:
    if isinstance(b, type) and issubclass(b, extended):
        kind = a.type if isinstance(a, ExtendedDType) else a
        return isinstance(kind, type) and issubclass(kind, b)
    if isinstance(a, ExtendedDType) or isinstance(b, ExtendedDType):
        return a == b or (isinstance(a, ExtendedDType) and b is np.generic)
    if isinstance(a, type) and issubclass(a, extended):
        return isinstance(b, type) and issubclass(a, b)
    if isinstance(b, type) and b in _ABSTRACT:
        if isinstance(a, type) and (a is np.generic or a in _ABSTRACT):
            return issubclass(a, b)
        return as_dtype(a) in _ABSTRACT[b]
    if isinstance(a, type) and (a is np.generic or a in _ABSTRACT) and a is not np.bool_:
        return b is np.generic
    a = as_dtype(a)
    return bool(np.issubdtype(a.type, b)) if isinstance(b, type) and b is np.generic else a == as_dtype(b)


_KINDS = {"bool": np.bool_, "signed integer": np.signedinteger, "unsigned integer": np.unsignedinteger,
          "integral": np.integer, "real floating": np.floating, "complex floating": np.complexfloating,
          "numeric": np.number}


def isdtype(dtype: Any, kind: Any) -> bool:
    """Whether `dtype` is of `kind`: 'bool', 'signed integer', 'unsigned integer', 'integral', 'real floating',
    'complex floating', 'numeric', a dtype, or a tuple of these.  Raises ValueError for any other kind."""
    exact = as_dtype(dtype)
    options = kind if isinstance(kind, tuple) else (kind,)
    return any(_is_kind(exact, option) for option in options)


def _is_kind(exact: Any, kind: Any) -> bool:
    if isinstance(kind, str) and kind in _KINDS:
        return issubdtype(exact, _KINDS[kind])
    try:
        return exact == as_dtype(kind)
    except TypeError:
        raise ValueError(f"kind must be a dtype or one of {', '.join(map(repr, _KINDS))}; got {kind!r}") from None


def scalar_type_of(x: Any) -> type:
    """The Python scalar type (bool, int, float, complex) that values of x's dtype correspond to."""
    dt = dtype(x) if not isinstance(x, (str, type, np.dtype)) else as_dtype(x)
    for scalar, kind in ((bool, np.bool_), (int, np.integer), (float, np.floating), (complex, np.complexfloating)):
        if issubdtype(dt, kind):
            return scalar
    raise TypeError(f"dtype {dt} of {x!r} corresponds to no Python scalar type")


def to_numeric(dtype: Any) -> np.dtype:
    """bool becomes int32, everything else stays."""
    dt = as_dtype(dtype)
    return SIGNED[2] if dt == BOOL else dt


def to_inexact_dtype(dtype: Any) -> np.dtype:
    """Integers and bool become float32 (64-bit ones float64, before canonicalization); floats and complex stay."""
    dt = as_dtype(dtype)
    if dt == BOOL or (dt in _INTEGERS and dt.name not in ("int1", "int2", "uint1", "uint2")):
        return F64 if dt.itemsize == 8 else F32
    return dt


def to_floating_dtype(dtype: Any) -> np.dtype:
    """Like `to_inexact_dtype`, and complex becomes the float of its parts."""
    dt = to_inexact_dtype(dtype)
    if dt in _COMPLEX:
        return F32 if dt == C64 else F64
    if dt not in _FLOATS:
        raise ValueError(f"dtype {dt} has no floating-point counterpart")
    return dt


def to_complex_dtype(dtype: Any) -> np.dtype:
    """complex128 for 64-bit reals and complex128, else complex64."""
    dt = as_dtype(dtype)
    return C128 if dt == C128 or (dt not in _COMPLEX and dt.itemsize == 8) else C64


def supports_inf(dtype: Any) -> bool:
    """Whether the float dtype has infinities; the `fn` and `fnuz` formats have none."""
    name = as_dtype(dtype).name
    return not (name.endswith(("fn", "fnuz", "fnu")) and name.startswith("float"))
