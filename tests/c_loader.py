"""What the tests of the C loader share: a plugin from PyPI, binaries, and an artifact with functions of every kind."""
from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
C = ROOT / "runtime_stubs" / "c"
PLUGIN = "lammps-jax-pjrt-cpu==0.11.2", "lammps_jax_pjrt_cpu/pjrt_c_api_cpu_plugin.so"
CC, CXX = shutil.which(os.environ.get("CC", "cc")), shutil.which(os.environ.get("CXX", "c++"))
C99 = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic"]
LIBS = ["-ldl", "-lpthread"]
QUIET = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}

MODEL = """\
import aot, numpy as np
import aot.numpy as jnp
from aot import lax

def mlp(params, x):
    return jnp.tanh(x @ params["w"]) @ params["v"]

def twice(x): return x + x
def invert(x): return ~x
def pairs(tree, scale): return {"sum": tree["a"] + tree["b"][0] * scale, "both": [tree["a"], tree["b"][0].T]}
def draw(key, mean): return mean + aot.random.normal(key, (3,)), aot.random.split(key)[0]
def donate(state, x): return state * 0.5 + x
def loop(x, n): return lax.fori_loop(0, n, lambda i, c: jnp.sin(c) + i, x)
def many(xs): return [sum(xs), xs[0] - xs[-1]]
def nothing(): return jnp.arange(5, dtype=jnp.int32)
def order(x): return jnp.sort(x, axis=0), jnp.argsort(x, axis=1), x.T
def solve(x, b): return jnp.linalg.solve(x, b), jnp.linalg.eigvalsh(x @ x.T)
def conv(x, k): return lax.conv_general_dilated(x, k, (1, 1), "SAME")
"""
#: function in the artifact -> (function of the module, arguments, more of its table in aot.toml)
FUNCTIONS: dict[str, tuple[str, list[str], dict]] = {
    "mlp": ("mlp", ["f32[8,16]"], {"weights": "params.npz"}),
    "mlp1": ("mlp", ["f32[1,16]"], {"weights": "params.npz"}),
    **{f"twice_{t}": ("twice", [f"{t}[3,5]"], {}) for t in
       ("f32", "f64", "f16", "bf16", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "c64", "c128", "f8_e4m3fn", "i4", "u4")},
    "invert_bool": ("invert", ["bool[7]"], {}),
    "scalar": ("twice", ["f32[]"], {}),
    "empty": ("twice", ["f32[0,3]"], {}),
    "pairs": ("pairs", ['{"a": f32[2,3], "b": [f32[2,3]]}', "f32[]"], {}),
    "draw": ("draw", ["key[]", "f32[3]"], {}),
    "donate": ("donate", ["f32[64]", "f32[64]"], {"donate": ["state"]}),
    "loop": ("loop", ["f32[6]", "i32[]"], {}),
    "many": ("many", ["[" + ", ".join(["f32[4]"] * 60) + "]"], {}),
    "nothing": ("nothing", [], {}),
    "order": ("order", ["f32[6,4]"], {}),
    "solve": ("solve", ["f64[6,6]", "f64[6,2]"], {}),
    "conv": ("conv", ["f32[2,3,12,12]", "f32[4,3,3,3]"], {}),
}


def cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "aot-test-plugins"


def plugin() -> str:
    """The path of the CPU plugin, fetched from PyPI the first time.  Never part of this repository."""
    requirement, file = PLUGIN
    folder = cache_folder() / requirement.replace("==", "-")
    if not (folder / file).exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        fresh = tempfile.mkdtemp(dir=folder.parent)
        done = subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps",
                               "--target", fresh, requirement], capture_output=True, text=True)
        if done.returncode:
            shutil.rmtree(fresh)
            raise RuntimeError(f"the plugin {requirement} could not be fetched:\n{done.stderr}")
        with contextlib.suppress(OSError):  # another process was faster
            os.rename(fresh, folder)
        shutil.rmtree(fresh, ignore_errors=True)
    return str(folder / file)


def compile_c(out: Path, *sources: Path, flags: list[str] | None = None) -> Path:
    done = subprocess.run([str(CC), *(flags or [*C99, "-O2"]), *map(str, sources), "-o", str(out), *LIBS], capture_output=True, text=True)
    assert not done.returncode, done.stderr
    return out


def install(folder: Path) -> Path:
    """`make install` to a folder."""
    done = subprocess.run(["make", "-s", "-C", str(C), f"BUILD={folder / 'build'}", f"PREFIX={folder}", "CFLAGS=-O2 -Werror", "install"],
                          capture_output=True, text=True)
    assert not done.returncode, done.stdout + done.stderr
    return folder


def project(folder: Path, targets: list[str], functions=FUNCTIONS) -> Path:
    """An artifact with these functions, from `aot build`."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    np.savez(folder / "params.npz", w=rng.standard_normal((16, 32)).astype("f"), v=rng.standard_normal((32, 4)).astype("f"))
    (folder / "model.py").write_text(MODEL)
    tables = [f"[project]\nname = \"c\"\nx64 = true\ntargets = {json.dumps(targets)}\n"]
    for name, (function, args, more) in functions.items():
        rows = {"name": name, "function": f"model.py:{function}", "args": args, "artifact": "all.aot", **more}
        tables.append("[[function]]\n" + "".join(f"{k} = {json.dumps(v)}\n" for k, v in rows.items()))
    (folder / "aot.toml").write_text("\n".join(tables))
    done = subprocess.run([sys.executable, "-m", "aot.cli", "build"], cwd=folder, capture_output=True, text=True)
    assert not done.returncode, done.stderr
    return folder / "build" / "all.aot"


def inputs_of(entries: list[dict], rng: np.random.Generator) -> list[np.ndarray]:
    """Random arrays for the inputs of a function in a manifest."""
    from aot_runtime import dtype_of
    out = []
    for e in entries:
        data = e.get("data", e)
        dtype, shape = dtype_of(data["dtype"]), data["shape"]
        values = rng.integers(0, 5, shape) if dtype.kind in "iub" or dtype.itemsize == 1 else rng.standard_normal(shape)
        if dtype.kind == "c":
            values = values + 1j * rng.standard_normal(shape)
        out.append(np.asarray(values % 2 if dtype.kind == "b" else values).astype(dtype))
    return out


#: what the Python loader makes of the same inputs: argv = artifact, device, folder with NAME.in.N.npy
REFERENCE = """
import sys, numpy as np, aot_runtime
artifact = aot_runtime.load(sys.argv[1], device=sys.argv[2])
for name in artifact:
    spec = artifact.manifest["functions"][name]
    entries = [e.get("data", e) for e in spec["inputs"]]
    xs = [np.load(f"{sys.argv[3]}/{name}.in.{i}.npy") for i in range(len(entries))]
    xs = [x if x.dtype.kind != "V" else x.view(aot_runtime.dtype_of(e["dtype"])) for x, e in zip(xs, entries)]
    for i, y in enumerate(artifact[name].call_flat(xs)):
        np.save(f"{sys.argv[3]}/{name}.want.{i}.npy", y)
"""


def run(*command: object, timeout: float = 120, **kwargs) -> subprocess.CompletedProcess:
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, env=QUIET, timeout=timeout, **kwargs)
