"""Exported models in onnxruntime, and as C, against XLA:CPU, one thread each.

    python benchmarks/exporters.py [transformer|cnn|export|operations]

Both sides run on one core in turn, in several rounds; figures are the best of each.  A ratio below 1 means that the exported
model needs less time.  Where jax2onnx is installed, its file of the same function takes part.
"""
from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time

os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

import numpy as np

import aot
from aot import lax, nn, tree_util
from aot import numpy as jnp
from aot.exporters import c, onnx, stablehlo
from aot.exporters.c.export import signature_in
from aot.exporters.c.run import build, function
from aot.exporters.onnx.run import session

RNG = np.random.default_rng(0)
WIDTH, HEADS, LAYERS, WORDS, BATCH, LENGTH = 256, 8, 4, 1000, 4, 128
DEEP = 15       # layers of the training step


def f32(*shape, scale=.05):
    return (RNG.standard_normal(shape) * scale).astype(np.float32)


# ---- a transformer -------------------------------------------------------------------------------------------------

def transformer_parameters():
    d = WIDTH
    layer = lambda: {"qkv": f32(d, 3 * d), "qb": f32(3 * d), "o": f32(d, d), "ob": f32(d), "up": f32(d, 4 * d),
                     "ub": f32(4 * d), "down": f32(4 * d, d), "db": f32(d), "g1": 1 + f32(d), "b1": f32(d), "g2": 1 + f32(d),
                     "b2": f32(d)}
    return {"words": f32(WORDS, d), "places": f32(LENGTH, d), "layers": [layer() for _ in range(LAYERS)], "g": 1 + f32(d),
            "b": f32(d)}


def layer_norm(x, g, b):
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(variance + 1e-5) * g + b


def attention(p, x):
    b, t, d = x.shape
    qkv = (x @ p["qkv"] + p["qb"]).reshape(b, t, 3, HEADS, d // HEADS)
    scores = jnp.einsum("bqhd,bkhd->bhqk", qkv[:, :, 0], qkv[:, :, 1]) / np.sqrt(d // HEADS)
    scores = jnp.where(jnp.tril(jnp.ones((t, t), bool)), scores, -1e9)
    return jnp.einsum("bhqk,bkhd->bqhd", nn.softmax(scores, axis=-1), qkv[:, :, 2]).reshape(b, t, d) @ p["o"] + p["ob"]


def transformer(p, words):
    x = p["words"][words] + p["places"]
    for l in p["layers"]:
        x = x + attention(l, layer_norm(x, l["g1"], l["b1"]))
        hidden = nn.gelu(layer_norm(x, l["g2"], l["b2"]) @ l["up"] + l["ub"], approximate=False)
        x = x + hidden @ l["down"] + l["db"]
    return layer_norm(x, p["g"], p["b"]) @ p["words"].T


# ---- a residual network --------------------------------------------------------------------------------------------

def conv(x, k, stride=1):
    return lax.conv_general_dilated(x, k, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def cnn_parameters():
    found, c = {"stem": f32(3, 3, 3, 32), "w": f32(128, 10)}, 32
    for i, n in enumerate((32, 64, 128)):
        found |= {f"a{i}": f32(3, 3, c, n), f"ab{i}": f32(n), f"b{i}": f32(3, 3, n, n), f"bb{i}": f32(n),
                  f"s{i}": f32(1, 1, c, n)}
        c = n
    return found


def cnn(p, x):
    x = nn.relu(conv(x, p["stem"]))
    x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "SAME")
    for i in range(3):
        stride = 1 if i == 0 else 2
        y = conv(nn.relu(conv(x, p[f"a{i}"], stride) + p[f"ab{i}"]), p[f"b{i}"]) + p[f"bb{i}"]
        x = nn.relu(y + conv(x, p[f"s{i}"], stride))
    return x.mean((1, 2)) @ p["w"]


# ---- measuring -----------------------------------------------------------------------------------------------------

def exported(f, p, x, format=onnx, **options):
    """(model, seconds to export the lowered program)"""
    lowered = aot.jit(f).trace(p, x).lower()
    arrays = [*(np.asarray(c) for c in lowered.consts), *map(np.asarray, tree_util.tree_leaves(p))]
    start = time.perf_counter()
    program = stablehlo.read(lowered.text, keep=format.KEEP, composites=getattr(format, "COMPOSITES", ()))
    made = format.export(stablehlo.bind(program, {i: (f"p{i}", a) for i, a in enumerate(arrays)}), **options)
    return made, time.perf_counter() - start


def in_c(f, p, x, folder):
    """(the function as C, from arrays to arrays; seconds to export it, and to compile the source)"""
    made, seconds = exported(f, p, x, c, weights="file")
    start = time.perf_counter()
    flags = "-std=gnu99", "-O3", "-march=native", "-shared", "-fPIC"
    library = build(made.save(os.path.join(folder, "model.c"))[0], folder, flags)
    return function(library, signature_in(made.header), made.weights), seconds, time.perf_counter() - start


def best_of(calls, rounds=7, repeat=3):
    """The best time of each call in milliseconds, measured in turn."""
    best = [float("inf")] * len(calls)
    for _ in range(rounds):
        for i, call in enumerate(calls):
            for _ in range(repeat):
                start = time.perf_counter()
                call()
                best[i] = min(best[i], (time.perf_counter() - start) * 1e3)
    return best


def by_jax2onnx(row):
    """(jax2onnx's model of a row of MODELS, seconds to export it), made in a process of its own; None where it is missing."""
    if importlib.util.find_spec("jax2onnx") is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.onnx")
        done = subprocess.run([sys.executable, __file__, "--jax2onnx", row, path], capture_output=True, text=True,
                              env={**os.environ, "JAX_PLATFORMS": "cpu"})
        if done.returncode:
            print(f"jax2onnx does not export {row}: {done.stderr.splitlines()[-1]}")
            return None
        with open(path, "rb") as file:
            return file.read(), json.loads(done.stdout.splitlines()[-1])


def write_by_jax2onnx(row, path):
    """The other side of `by_jax2onnx`: the functions above over jax."""
    global jnp, lax, nn
    import jax
    from jax2onnx import to_onnx
    jnp, lax, nn = jax.numpy, jax.lax, jax.nn
    f, make, x, *_ = MODELS[row]
    p = jax.tree.map(jnp.asarray, make())
    start = time.perf_counter()
    model = to_onnx(lambda x: f(p, x), [jax.ShapeDtypeStruct(x.shape, x.dtype)])
    seconds = time.perf_counter() - start
    with open(path, "wb") as file:
        file.write(model.SerializeToString())
    print(json.dumps(seconds))


def compare(name):
    f, make, x, bar = MODELS[name]
    p = make()
    made, seconds = exported(f, p, x)
    loaded, feed = session(made.data), {made.inputs[0][0]: x}
    compiled, on_device = aot.jit(f), tree_util.tree_map(jnp.asarray, p)
    given = jnp.asarray(x)
    want, got = np.asarray(compiled(on_device, given)), loaded.run(None, feed)[0]
    error = np.abs(want - got).max() / np.abs(want).max()
    calls, theirs = [lambda: loaded.run(None, feed), lambda: compiled(on_device, given).block_until_ready()], by_jax2onnx(name)
    if theirs:
        other = session(theirs[0])
        calls.append(lambda: other.run(None, {other.get_inputs()[0].name: x}))
        try:
            calls[-1]()
        except Exception as e:
            print(f"jax2onnx's {name} does not run: {str(e)[-120:]}")
            theirs = calls.pop() and None
    ort, xla, *jax2onnx = best_of(calls)
    print(f"{name:12} onnxruntime {ort:7.1f} ms   XLA {xla:7.1f} ms   ratio {ort / xla:.2f} (bar {bar})   error {error:.1e}   "
          f"{len(made.model.graph.node)} nodes, exported in {seconds:.2f} s")
    with tempfile.TemporaryDirectory() as folder:
        call, exporting, compiling = in_c(f, p, x, folder)
        error = np.abs(want - call([x])[0]).max() / np.abs(want).max()
        in_c_ms, again = best_of([lambda: call([x]), lambda: compiled(on_device, given).block_until_ready()])
    print(f"{'':12} C           {in_c_ms:7.1f} ms   XLA {again:7.1f} ms   ratio {in_c_ms / again:.2f}              "
          f"error {error:.1e}   exported in {exporting:.2f} s, compiled in {compiling:.1f} s")
    if theirs:
        print(f"{'':12} jax2onnx's  {jax2onnx[0]:7.1f} ms   ratio {ort / jax2onnx[0]:.2f} (bar 1.05)   "
              f"exported in {theirs[1]:.2f} s")


def export_time():
    """A training step of a deeper transformer: operations, and seconds to export them; jax2onnx exports the forward pass."""
    global LAYERS
    LAYERS = DEEP
    def step(p, words):
        loss, g = aot.value_and_grad(lambda p: (transformer(p, words) ** 2).mean())(p)
        return loss, tree_util.tree_map(lambda a, b: a - 1e-3 * b, p, g)
    lowered = aot.jit(step).trace(transformer_parameters(), np.zeros((BATCH, LENGTH), np.int32)).lower()
    start = time.perf_counter()
    made = onnx.export(lowered.text)
    print(f"training step: {lowered.text.count(' = ')} operations, {len(made.model.graph.node)} nodes, exported in "
          f"{(seconds := time.perf_counter() - start):.2f} s")
    if theirs := by_jax2onnx("deep"):
        print(f"jax2onnx exports its forward pass in {theirs[1]:.2f} s   ratio {seconds / theirs[1]:.2f} (bar 0.10)")


def deep_parameters():
    global LAYERS
    LAYERS = DEEP
    return transformer_parameters()


# ---- operations in C -------------------------------------------------------------------------------------------------

def layer(dims, **options):
    options = {"window_strides": (1,) * (len(dims) - 2), "padding": "SAME", **options}
    spec = dims, f"OI{dims[2:]}" if dims[1] == "C" else f"{dims[1:-1]}IO", dims
    return lambda x, k: lax.conv_general_dilated(x, k, dimension_numbers=spec, **options)


def gradient(f, i):
    """The derivative of the i-th argument, for the result as cotangent."""
    return lambda x, k: aot.vjp(f, x, k)[1](f(x, k))[i]


def c64(*shape): return (f32(*shape) + 1j * f32(*shape)).astype(np.complex64)


def compare_operation(name, f, args):
    compiled, on_device = aot.jit(f), [jnp.asarray(a) for a in args]
    want = np.asarray(compiled(*on_device))
    with tempfile.TemporaryDirectory() as folder:
        made = c.export(compiled.lower(*args).as_text())
        path, _ = made.save(os.path.join(folder, "operation.c"))
        flags = "-std=c99", "-O3", "-march=native", "-ffp-contract=fast", "-shared", "-fPIC"
        entry = getattr(ctypes.CDLL(build(path, folder, flags)), made.name)
    got, work = np.empty_like(want), np.zeros(made.workspace + 64, np.uint8)
    places = [ctypes.c_void_p(at) for at in (*(a.ctypes.data for a in args), got.ctypes.data, -(-work.ctypes.data // 64) * 64)]
    in_c_ms, xla = best_of([lambda: entry(*places), lambda: compiled(*on_device).block_until_ready()], rounds=30)
    print(f"{name:36} C {in_c_ms:8.3f} ms   XLA {xla:8.3f} ms   ratio {in_c_ms / xla:5.2f}   "
          f"error {np.abs(want - got).max() / np.abs(want).max():.1e}   workspace {made.workspace / 1024:.0f} KB")


def operations():
    for row in OPERATIONS:
        compare_operation(*row)


FIRST, LAST = layer("NCHW"), layer("NHWC")
IMAGES, KERNEL = f32(8, 32, 28, 28), f32(64, 32, 3, 3)
IMAGES_LAST, KERNEL_LAST = f32(8, 28, 28, 32), f32(3, 3, 32, 64)
#: name, function, arguments
OPERATIONS = [
    ("NCHW, 3x3", FIRST, (IMAGES, KERNEL)), ("NCHW, 5x5", FIRST, (IMAGES, f32(64, 32, 5, 5))),
    ("NCHW, 1x1", FIRST, (IMAGES, f32(64, 32, 1, 1))),
    ("NCHW, 3x3, 7x7 positions", FIRST, (f32(1, 256, 7, 7), f32(256, 256, 3, 3))),
    ("NCHW, 7x7, strides of 2", layer("NCHW", window_strides=(2, 2)), (f32(1, 3, 224, 224), f32(64, 3, 7, 7))),
    ("NCHW, 3x3, 4 groups", layer("NCHW", feature_group_count=4), (f32(4, 64, 28, 28), f32(64, 16, 3, 3))),
    ("NCHW, 3x3, depthwise", layer("NCHW", feature_group_count=64), (f32(4, 64, 56, 56), f32(64, 1, 3, 3))),
    ("NCHW, 3x3, dilated input", layer("NCHW", lhs_dilation=(2, 2), padding=((1, 2), (1, 2))),
     (f32(4, 64, 14, 14), f32(32, 64, 3, 3))),
    ("NCHW, 3x3 and gradient of the input", gradient(FIRST, 0), (IMAGES, KERNEL)),
    ("NCHW, 3x3 and gradient of the kernel", gradient(FIRST, 1), (IMAGES, KERNEL)),
    ("NHWC, 3x3", LAST, (IMAGES_LAST, KERNEL_LAST)),
    ("NHWC, 3x3, depthwise", layer("NHWC", feature_group_count=64), (f32(4, 56, 56, 64), f32(3, 3, 1, 64))),
    ("NHWC, 3x3 and gradient of the input", gradient(LAST, 0), (IMAGES_LAST, KERNEL_LAST)),
    ("NHWC, 3x3 and gradient of the kernel", gradient(LAST, 1), (IMAGES_LAST, KERNEL_LAST)),
    ("NCH, 5", layer("NCH"), (f32(4, 32, 1000), f32(64, 32, 5))), ("NHC, 5", layer("NHC"), (f32(4, 1000, 32), f32(5, 32, 64))),
    ("fft, 64 of 1,024", jnp.fft.fft, (c64(64, 1024),)), ("fft, 4,096", jnp.fft.fft, (c64(4096),)),
    ("fft, 64 of 1,000", jnp.fft.fft, (c64(64, 1000),)), ("fft, 100 of 97", jnp.fft.fft, (c64(100, 97),)),
    ("fft, 10 of 1,009", jnp.fft.fft, (c64(10, 1009),)), ("fft2, 256 x 256", jnp.fft.fft2, (c64(256, 256),)),
    ("rfft, 64 of 1,024", jnp.fft.rfft, (f32(64, 1024),)), ("irfft, 64 of 1,024", jnp.fft.irfft, (c64(64, 513),)),
    ("log_softmax, 256 of 1,000", nn.log_softmax, (f32(256, 1000),)),
    ("log_softmax, 4,096 of 10", nn.log_softmax, (f32(4096, 10),)),
    ("softmax, 4,096 of 128", nn.softmax, (f32(4096, 128),)),
    ("logsumexp, 256 of 1,000", lambda x: nn.logsumexp(x, -1), (f32(256, 1000),)),
]

TOKENS = RNG.integers(0, WORDS, (BATCH, LENGTH)).astype(np.int32)
#: function, its parameters, its input, bar against XLA
MODELS = {"transformer": (transformer, transformer_parameters, TOKENS, 1.1),
          "cnn": (cnn, cnn_parameters, f32(8, 64, 64, 3, scale=1), 0.85), "deep": (transformer, deep_parameters, TOKENS, None)}
ROWS = {"transformer": lambda: compare("transformer"), "cnn": lambda: compare("cnn"), "export": export_time,
        "operations": operations}

if __name__ == "__main__":
    if sys.argv[1:2] == ["--jax2onnx"]:
        write_by_jax2onnx(*sys.argv[2:])
    else:
        for row in sys.argv[1:] or ROWS:
            ROWS[row]()
