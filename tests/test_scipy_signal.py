"""scipy.signal, fft, ndimage, interpolate and integrate: against real jax and scipy."""
import importlib
import itertools
import warnings

import numpy as np
import pytest
import scipy.fft
import scipy.ndimage
import scipy.signal

import aot
import aot.scipy as sp
from tests.support import compare

SAMPLED = 3     # rows: one in 3, see conftest.py

F, C = np.float32, np.complex64
R = np.random.RandomState(0)
V, K = R.randn(9).astype(F), R.randn(4).astype(F)
M, W = R.randn(5, 6).astype(F), R.randn(2, 4).astype(F)
Z = (R.randn(9) + 1j * R.randn(9)).astype(C)
LONG = R.randn(2, 50).astype(F)
MODES = ["full", "same", "valid"]


def functions(m):
    return importlib.import_module(f"{m.__name__}.scipy.signal")


CONV = [(V, K), (K, V), (V, V), (M, W), (M, M), (Z, K), (Z, Z[:4]), (np.arange(6), np.arange(3)), (R.randn(3, 4, 2).astype(F), R.randn(2, 2, 2).astype(F))]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["convolve", "correlate", "fftconvolve", "convolve fft"])
def test_convolution(name, mode):
    for a, b in CONV:
        name_, kw = name.split()[0], {"method": "fft"} if " " in name else {}
        compare(lambda m, lax: lambda a, b: getattr(functions(m), name_)(a, b, mode, **kw), a, b)
        if a.ndim == 1 or a.shape == b.shape or name != "correlate":
            want = getattr(scipy.signal, name_)(a, b, mode)
            np.testing.assert_allclose(getattr(sp.signal, name_)(a, b, mode, **kw), want, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["convolve2d", "correlate2d"])
def test_matrices(name, mode):
    for a, b in [(M, W), (M, M), (M, W[:, :3]), (M.astype(C) * (1 + 2j), W * (2 - 1j)), (W, M)]:
        got = getattr(sp.signal, name)(a, b, mode)
        if not (a.shape < b.shape and mode == "same"):
            np.testing.assert_allclose(got, getattr(scipy.signal, name)(a, b, mode), rtol=1e-3, atol=1e-4)
        compare(lambda m, lax: lambda a, b: getattr(functions(m), name)(a, b, mode), a, b)


def test_convolution_along_axes_and_derivatives():
    a, b = R.randn(3, 7, 2).astype(F), R.randn(3, 3, 2).astype(F)
    for axes in (1, (1,), (-2,)):
        np.testing.assert_allclose(sp.signal.fftconvolve(a, b, "same", axes), scipy.signal.fftconvolve(a, b, "same", axes), rtol=1e-4, atol=1e-5)
    compare(lambda m, lax: m.grad(lambda a, b: (functions(m).convolve(a, b) ** 2).sum(), (0, 1)), V, K)
    compare(lambda m, lax: m.vmap(lambda a: functions(m).fftconvolve(a, K[:3])), M)


BAD = [("convolve", (V, M), {}), ("convolve", (V, K), {"mode": "half"}), ("convolve", (V, K), {"method": "slow"}), ("convolve", (V, V[:0]), {}),
       ("convolve", (R.randn(2, 5), R.randn(5, 2)), {}), ("fftconvolve", (R.randn(2, 5), R.randn(5, 2)), {"mode": "valid"}),
       ("convolve2d", (V, K), {}), ("convolve2d", (M, W), {"boundary": "wrap"}), ("detrend", (V,), {"type": "cubic"}), ("detrend", (V,), {"bp": 20}),
       ("stft", (V,), {"nperseg": 4, "noverlap": 4}), ("stft", (V,), {"nperseg": 0}), ("stft", (V,), {"nperseg": 4, "nfft": 3}),
       ("stft", (V,), {"boundary": "none", "nperseg": 4}), ("welch", (V,), {"scaling": "x"}), ("welch", (M,), {"average": "mode", "nperseg": 3}),
       ("istft", (Z,), {}), ("stft", (V,), {"window": np.ones(20), "nperseg": None}), ("csd", (M, V), {})]


@pytest.mark.parametrize("name, args, options", BAD)
def test_errors_are_those_of_jax(name, args, options):
    jax = pytest.importorskip("jax")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(Exception) as theirs:
            getattr(functions(jax), name)(*args, **options)
        with pytest.raises(type(theirs.value)):
            getattr(sp.signal, name)(*args, **options)


def test_detrend():
    for data, options in itertools.product((V, M, np.arange(6)), ({}, {"type": "constant"}, {"axis": 0}, {"bp": [2]}, {"bp": 3, "axis": 0})):
        np.testing.assert_allclose(sp.signal.detrend(data, **options), scipy.signal.detrend(data, **options), rtol=1e-3, atol=1e-5)
    compare(lambda m, lax: lambda x: functions(m).detrend(x), data)


SPECTRA = [{}, {"nperseg": 16}, {"nperseg": 16, "noverlap": 3}, {"nperseg": 15, "nfft": 32}, {"nperseg": 8, "window": "hamming"},
           {"nperseg": 8, "window": ("tukey", .5)}, {"window": np.linspace(1, 2, 10), "nperseg": None}, {"nperseg": 10, "fs": 4.},
           {"nperseg": 9, "return_onesided": False}, {"nperseg": 8, "detrend": "linear"}, {"nperseg": 8, "detrend": "constant"}, {"nperseg": 4, "axis": 0}]
STFT = [{"boundary": b, "nperseg": 8, "padded": p} for b in ("even", "odd", "constant", None) for p in (True, False)]
WELCH = [{"scaling": "spectrum", "nperseg": 8}, {"average": "median", "nperseg": 8}, {"average": "median", "nperseg": 20}]
ROWS = [(n, o) for n, rows in (("stft", SPECTRA + STFT), ("welch", SPECTRA[::3] + WELCH), ("csd", SPECTRA[1::3] + WELCH)) for o in rows]


@pytest.mark.parametrize("name, options", ROWS, ids=str)
@pytest.mark.filterwarnings("ignore:nperseg", "ignore:Input data")
def test_spectra(name, options):
    x = np.ascontiguousarray(LONG.T) if options.get("axis") == 0 else LONG
    if "window" in options and not isinstance(options["window"], (str, tuple)):
        options = {**options, "window": options["window"].astype(F)}
    for data in (x, x[0] if options.get("axis") != 0 else x[:, 0], x.astype(C) * (1 - 2j)):
        args = (data, np.cos(data)) if name == "csd" else (data,)
        want = getattr(scipy.signal, name)(*args, **options)
        got = getattr(sp.signal, name)(*args, **options)
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5)
    compare(lambda m, lax: lambda *a: getattr(functions(m), name)(*a, **options), *args)       # of the complex data


INVERSE = [{"nperseg": 16}, {"nperseg": 16, "noverlap": 12}, {"nperseg": 15}, {"nperseg": 8, "window": "hamming"}, {"nperseg": 16, "nfft": 20},
           {"nperseg": 16, "noverlap": 0, "window": "boxcar"}]


@pytest.mark.parametrize("options", INVERSE, ids=str)
def test_inverse(options):
    _, _, spectrum = sp.signal.stft(LONG, **options)
    t, x = sp.signal.istft(spectrum, **options)
    np.testing.assert_allclose(x[:, :50], LONG, rtol=1e-3, atol=1e-4)
    want = scipy.signal.istft(np.asarray(spectrum), **options)
    np.testing.assert_allclose(t, want[0])
    np.testing.assert_allclose(x, want[1], rtol=1e-3, atol=1e-4)
    moved = sp.signal.istft(aot.numpy.moveaxis(spectrum, -1, 0), time_axis=0, freq_axis=-1, **options)[1]
    np.testing.assert_allclose(moved, scipy.signal.istft(np.moveaxis(np.asarray(spectrum), -1, 0), time_axis=0, freq_axis=-1, **options)[1], rtol=1e-3, atol=1e-4)
    _, _, two = sp.signal.stft(LONG, return_onesided=False, **options)
    np.testing.assert_allclose(sp.signal.istft(two, input_onesided=False, **options)[1][:, :50], LONG, rtol=1e-3, atol=1e-4)
    grad = aot.grad(lambda x: (sp.signal.istft(sp.signal.stft(x, **options)[2], **options)[1][:50] ** 2).sum())(LONG[0])
    np.testing.assert_allclose(grad, 2 * LONG[0], rtol=1e-3, atol=1e-4)


# ---- cosine transforms -----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("name", ["dct", "idct", "dctn", "idctn"])
@pytest.mark.parametrize("norm", [None, "ortho", "backward"])
def test_cosine_transforms(name, norm):
    call = lambda m: getattr(importlib.import_module(f"{m.__name__}.scipy.fft"), name)
    sizes = ({}, {"n": 4}, {"n": 8}, {"axis": 0}) if name[-1] == "t" else ({}, {"s": (4, 8)}, {"axes": (0,)}, {"s": (3,), "axes": (1,)}, {"axes": (1, 0)})
    for x, options in itertools.product((M, M.astype(C) * (1 + 1j), M[:1], M[:, :1], np.arange(12).reshape(3, 4)), sizes):
        if not np.iscomplexobj(x):
            np.testing.assert_allclose(call(aot)(x, norm=norm, **options), getattr(scipy.fft, name)(x, norm=norm, **options), rtol=1e-3, atol=1e-4)
        if x.shape == M.shape and not (name.startswith("idct") and np.iscomplexobj(x)):
            compare(lambda m, lax: lambda x: call(m)(x, norm=norm, **options), x, atol=1e-4)
    compare(lambda m, lax: m.grad(lambda x: (call(m)(x, norm=norm) ** 3).sum()), M, atol=1e-3)
    for bad in ({"type": 3}, {"norm": "x"}):
        compare(lambda m, lax: lambda x: call(m)(x, **bad), M)


# ---- interpolation ---------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("mode", ["constant", "nearest", "wrap", "mirror", "reflect"])
@pytest.mark.parametrize("order", [0, 1])
def test_map_coordinates(order, mode):
    at = lambda m: importlib.import_module(f"{m.__name__}.scipy.ndimage").map_coordinates
    points = R.uniform(-9, 12, (2, 40)).astype(F)
    for table in (M, (M * 10).astype(np.int32), M[:, :2], M[:2]):
        compare(lambda m, lax: lambda t, *p: at(m)(t, list(p), order, mode, 3), table, *points)
    if mode in ("nearest", "mirror", "reflect"):
        np.testing.assert_allclose(at(aot)(M, list(points), order, mode), scipy.ndimage.map_coordinates(M, points, order=order, mode=mode), rtol=1e-4, atol=1e-4)
    compare(lambda m, lax: m.grad(lambda t, *p: (at(m)(t, list(p), order, mode) ** 2).sum(), (0, 1)), M, *points)
    assert at(aot)(M[:1], [np.zeros(2, F), np.ones(2, F)], order, mode).tolist() == [M[0, 1]] * 2
    for args in ((M, [points[0]], 1), (M, points, 2), (M, points, 1, "grid-wrap")):
        compare(lambda m, lax: lambda: at(m)(*args))


@pytest.mark.parametrize("method", ["linear", "nearest"])
@pytest.mark.parametrize("fill", [np.nan, 2., None])
def test_regular_grid(method, fill):
    make = lambda m: importlib.import_module(f"{m.__name__}.scipy.interpolate").RegularGridInterpolator
    grid = (np.array([0, 1, 3, 4, 9], F), np.array([-1, 0, .5, 2, 3, 4], F))
    points = R.uniform(-2, 10, (20, 2)).astype(F)
    for values in (M, R.randn(5, 6, 3).astype(F)):
        compare(lambda m, lax: lambda p, v: make(m)(grid, v, method, fill_value=fill)(p), points, values)
        compare(lambda m, lax: lambda p, q, v: make(m)(grid, v, method, fill_value=fill)((p, q)), points[:, 0], points[:, 1], values)
        compare(lambda m, lax: m.jit(lambda p, v: make(m)(grid, v, method, fill_value=fill)(p)), points, values)
    compare(lambda m, lax: m.grad(lambda v: (make(m)(grid, v, method, fill_value=0.)(points) ** 2).sum()), M)
    f = make(aot)(grid, M, method, fill_value=fill)
    np.testing.assert_allclose(aot.jit(lambda f, p: f(p))(f, points), f(points), rtol=1e-5, atol=1e-6)
    for bad in ({"method": "cubic"}, {"bounds_error": True}, {"fill_value": 1j}):
        compare(lambda m, lax: lambda v: make(m)(grid, v, **bad), M)
    compare(lambda m, lax: lambda v: make(m)(grid, v[0]), M)


def test_trapezoid():
    compare(lambda m, lax: lambda y: importlib.import_module(f"{m.__name__}.scipy.integrate").trapezoid(y, dx=.5, axis=0), M)
