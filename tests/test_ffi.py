"""aot.ffi: handlers of jaxlib's LAPACK and one of our own, called under transformations, as over real jax."""
import ctypes
import importlib
import shutil
import subprocess

import numpy as np
import pytest

import aot
from aot import ffi
from aot.trace import Primitive, bind, typeof
from aot.xla import register_lapack

F = np.float32
A = np.array([[4, 2, 1], [2, 5, 3], [1, 3, 6]], F)
LOWER = {"uplo": np.uint8(ord("L"))}
X = np.arange(6, dtype=F).reshape(2, 3)


def potrf(m, **options):
    """Cholesky's kernel, on a matrix in columns: (matrix with the factor below, info)."""
    register_lapack()
    outs = (m.ShapeDtypeStruct((3, 3), F), m.ShapeDtypeStruct((), np.int32))
    return m.ffi.ffi_call("lapack_spotrf_ffi", outs, **{"input_layouts": [(1, 0)], "output_layouts": [(1, 0), None],
                                                        "input_output_aliases": {0: 0}, **options})


BATCH = np.stack([A, 2 * A, np.eye(3, dtype=F)])

#  name, function of (module, call of the kernel)
USES = {
    "eager": lambda m, call: call(A, **LOWER),
    "jit": lambda m, call: m.jit(lambda a: call(a, **LOWER))(A),
    "vmap": lambda m, call: m.vmap(lambda a: call(a, **LOWER))(BATCH),
    "vmap, last": lambda m, call: m.vmap(lambda a: call(a, **LOWER), in_axes=2)(np.moveaxis(BATCH, 0, 2)),
    "vmap, twice": lambda m, call: m.vmap(m.vmap(lambda a: call(a, **LOWER)))(np.stack([BATCH, 3 * BATCH])),
}


@pytest.mark.parametrize("method", ["sequential", "sequential_unrolled", "expand_dims", "broadcast_all", "legacy_vectorized"])
@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_kernel(use, method):
    factor, info = use(aot, potrf(aot, vmap_method=method))
    assert not np.asarray(info).any()
    low = np.tril(factor)
    want = {2: A, 3: BATCH, 4: np.stack([BATCH, 3 * BATCH])}[low.ndim]
    np.testing.assert_allclose(low @ low.swapaxes(-1, -2), want, rtol=1e-5)
    jax = pytest.importorskip("jax")
    importlib.import_module("jax.ffi")
    for ours, theirs in zip((factor, info), use(jax, potrf(jax, vmap_method=method)), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def test_a_primitive_of_ones_own():
    """`ffi_lowering` is the rule `lower`; params are the handler's attributes."""
    register_lapack()

    class Cholesky(Primitive):
        name = "cholesky_of_columns"
        lower = staticmethod(ffi.ffi_lowering("lapack_spotrf_ffi", operand_layouts=[(1, 0)], result_layouts=[(1, 0), None],
                                              operand_output_aliases={0: 0}))

        def infer(self, a, **_): return [a, typeof(np.int32(0))]

    factor, _ = aot.jit(lambda a: bind(Cholesky(), a, uplo=np.uint8(ord("L"))))(A)
    np.testing.assert_allclose(np.tril(factor), np.linalg.cholesky(A), rtol=1e-5)


SOURCE = r"""
#include "xla/ffi/api/ffi.h"
namespace ffi = xla::ffi;
static int calls = 0;
extern "C" int count() { return calls; }
static ffi::Error Run(ffi::Buffer<ffi::F32> x, double a, int32_t n, bool twice, std::string_view name,
                      ffi::Span<const float> b, ffi::Dictionary more, ffi::ResultBuffer<ffi::F32> y) {
  auto shift = more.get<int64_t>("shift");
  if (!shift) return shift.error();
  if (name != "caf\xc3\xa9 \"\\") return ffi::Error::InvalidArgument("another name");
  for (size_t i = 0; i < x.element_count(); ++i)
    y->typed_data()[i] = (a * x.typed_data()[i] + n + b[i % b.size()] + *shift) * (twice ? 2 : 1);
  ++calls;
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(run, Run, ffi::Ffi::Bind().Arg<ffi::Buffer<ffi::F32>>().Attr<double>("a").Attr<int32_t>("n")
    .Attr<bool>("twice").Attr<std::string_view>("name").Attr<ffi::Span<const float>>("b").Attr<ffi::Dictionary>("more")
    .Ret<ffi::Buffer<ffi::F32>>());
"""
ATTRIBUTES = {"a": 2.0, "n": np.int32(3), "twice": True, "name": 'café "\\', "b": np.array([1, 2, 3], F), "more": {"shift": 7}}


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    if shutil.which("g++") is None:
        pytest.skip("needs a C++ compiler")
    folder = tmp_path_factory.mktemp("ffi")
    (folder / "run.cc").write_text(SOURCE)
    subprocess.run(["g++", "-std=c++17", "-O0", "-w", "-shared", "-fPIC", f"-I{ffi.include_dir()}", str(folder / "run.cc"), "-o",
                    str(folder / "run.so")], check=True)
    found = ctypes.CDLL(str(folder / "run.so"))
    ffi.register_ffi_target("tests_run", ffi.pycapsule(found.run))
    return found


def test_attributes(library):
    call = ffi.ffi_call("tests_run", aot.ShapeDtypeStruct((2, 3), F), vmap_method="broadcast_all")
    want = 2 * (2 * X + 3 + np.array([1, 2, 3]) + 7)
    np.testing.assert_array_equal(call(X, **ATTRIBUTES), want)
    np.testing.assert_array_equal(aot.vmap(lambda x: call(x, **ATTRIBUTES))(np.stack([X, X]))[1], want)
    with pytest.raises(aot.xla.XlaRuntimeError, match="another name"):
        np.asarray(call(X, **{**ATTRIBUTES, "name": "x"}))
    e = aot.export.export(aot.jit(lambda x: call(x, **ATTRIBUTES)),
                          disabled_checks=[aot.export.DisabledSafetyCheck.custom_call("tests_run")])(X)
    np.testing.assert_array_equal(aot.export.deserialize(e.serialize()).call(X), want)
    with pytest.raises(ValueError, match="custom calls of tests_run"):
        aot.export.export(aot.jit(lambda x: call(x, **ATTRIBUTES)))(X)


@pytest.mark.parametrize("effect", [False, True])
def test_calls_with_side_effects_are_kept(library, effect):
    call = ffi.ffi_call("tests_run", aot.ShapeDtypeStruct((2, 3), F), has_side_effect=effect)
    before = library.count()
    np.asarray(aot.jit(lambda x: [call(x, **ATTRIBUTES), x + 1][1])(X))
    assert library.count() - before == effect


STRUCT = aot.ShapeDtypeStruct((2, 3), F)
REFUSED = {
    "vmap_method": (ValueError, "one of 'sequential'", lambda: ffi.ffi_call("f", STRUCT, vmap_method="often")),
    "no vmap_method": (NotImplementedError, "vmap_method=", lambda: aot.vmap(ffi.ffi_call("f", STRUCT))(X)),
    "derivative": (ValueError, "custom_jvp", lambda: aot.grad(lambda x: ffi.ffi_call("f", STRUCT)(x).sum())(X)),
    "attribute": (TypeError, "f, attribute q: .* of type complex", lambda: ffi.ffi_call("f", STRUCT)(X, q=1j)),
    "attribute in a dict": (TypeError, "attribute d, attribute q", lambda: ffi.ffi_call("f", STRUCT)(X, d={"q": X})),
    "legacy": (ValueError, "custom_call_api_version < 4", lambda: ffi.ffi_call("f", STRUCT, legacy_backend_config="x")),
    "legacy attributes": (ValueError, "legacy_backend_config=", lambda: ffi.ffi_call("f", STRUCT, custom_call_api_version=2)(X, a=1)),
    "layout": (ValueError, "does not order", lambda: ffi.ffi_call("f", STRUCT, output_layouts=(0,))),
    "layouts": (ValueError, "2 entries for 1", lambda: ffi.ffi_call("f", STRUCT, input_layouts=[None, None])(X)),
    "alias": (ValueError, "must have one type", lambda: ffi.ffi_call("f", STRUCT, input_output_aliases={0: 0})(X.T)),
    "alias of nothing": (ValueError, "has 1: 0", lambda: ffi.ffi_call("f", STRUCT, input_output_aliases={1: 0})(X)),
}


@pytest.mark.parametrize("kind, message, call", REFUSED.values(), ids=REFUSED)
def test_refused(kind, message, call):
    with pytest.raises(kind, match=message):
        call()


@pytest.mark.parametrize("value, text", [
    (True, "true"), (np.bool_(False), "false"), (3, "3 : i64"), (-1.5, "-1.5 : f64"), (np.uint8(7), "7 : ui8"),
    (np.float32(np.inf), "0x7F800000 : f32"), (np.array([], np.int32), "dense<> : tensor<0xi32>"),
    (np.array([1, 1], np.uint8), "dense<1> : tensor<2xui8>"), (np.array([True, False]), "dense<[true, false]> : tensor<2xi1>"), ("a\n", '"a\\0A"'), ({"b": 1, "a": {}}, "{a = {}, b = 1 : i64}")])
def test_text_of_attributes(value, text):
    assert ffi.attribute_text(value, "f") == text
    aot.mlir.parse(f"module attributes {{mhlo.x = {text}}} {{}}")
