"""`import aot.as_jax`: what `import jax` means then, and libraries written for jax, compared with jax itself."""
from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from aot.cli import main
from tests.support import jax

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "libraries.md"


def run(code: str, tmp_path: Path, *options: str) -> subprocess.CompletedProcess:
    env = {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}
    return subprocess.run([sys.executable, *options, "-c", code], capture_output=True, text=True, cwd=tmp_path, env=env)


# ---- the names -------------------------------------------------------------------------------------------------------

NAMES = [
    ("import jax, jax.numpy as jnp, aot; assert jnp is aot.numpy is jax.numpy and jax.jit is aot.jit"),
    ("from jax import lax, numpy as jnp; from jax.nn import relu; import jax.scipy.special; import aot; assert lax is aot.lax"),
    ("import jax; assert jax.__version__ == '0.10.2' and jax.__version_info__ == (0, 10, 2)"),
    ("import jax; jax.config.update('jax_enable_x64', True); assert jax.numpy.ones(2).dtype == 'float64'"),
    ("import jax, aot; from jax._src.core import Tracer; assert Tracer is aot.core.Tracer"),
    ("import jax, jax._src.tree_util as t; assert list in t._registry and int not in t._registry"),
    ("from jax._src.tree_util import _registry as r; import jax, collections; P = collections.namedtuple('P', 'a b'); "
     "back = lambda x: r[type(x)].from_iter(*r[type(x)].to_iter(x)[::-1]); trees = [[1, [2]], (1,), {'b': 1, 'a': [2]}, P(1, (2,))]; "
     "assert [back(t) for t in trees] == trees"),
    ("import inspect; from jax._src.api_util import infer_argnums_and_argnames as f; s = inspect.signature(lambda x, y, *, z: 0); "
     "assert [f(s, 1, None), f(s, None, ('x', 'z')), f(s, None, None)] == [((1,), ('y',)), ((0,), ('x', 'z')), ((), ())]"),
    ("from jax.experimental import pallas as pl; import jax.experimental.pallas.tpu; pl.pallas_call"),
    ("from importlib import metadata; assert metadata.version('jax') == '0.10.2' and metadata.version('numpy')"),
    ("import jax; assert jax._src.xla_bridge._backends == {}; jax.numpy.ones(2); assert 'cpu' in jax._src.xla_bridge._backends"),
    ("import importlib, aot.as_jax; importlib.reload(aot.as_jax); import jax; assert jax.numpy.ones(2).shape == (2,)"),
    ("import jax; from jax import Array; from jax.sharding import Mesh; from jax.experimental import mesh_utils; "
     "assert isinstance(jax.numpy.ones(1), Array)"),
    ("import pickle, jax, jax._src.core as c; assert [pickle.loads(pickle.dumps(m)) is m for m in (jax, c)] == [True, True]"),
    ("import jax; assert 'vmap' in dir(jax) and not hasattr(jax, 'nothing')"),
    ("from jax.interpreters import pxla; import jax.experimental.colocated_python as c; assert not isinstance(1, c.A | pxla.B)"),
    ("import jax; assert jax._src.distributed.global_state.client is None and jax._src.distributed.global_state.process_id == 0"),
    ("from jax._src.numpy.util import promote_dtypes_complex as p; from jax._src.scipy.special import gammaln; "
     "from jax._src.lax.control_flow import scan; a, b = p(1, 2.); assert a.dtype == b.dtype == 'complex64'"),
    ("import jax.numpy as jnp, jax.scipy.special as s, jax.lax as l, jax.experimental.sparse as e; "
     "assert 'einsum' in vars(jnp) and {'abs', 'dot'} < jnp.__dict__.keys() and 'erf' in vars(s) and 'approx_max_k' in vars(l) and 'BCOO' in vars(e)"),
    ("import jax, jax.numpy as jnp; seen = [jnp.ones(2)]; f = lambda x: seen.append(x) or x; jax.jit(f)(1.); jax.grad(f)(1.); "
     "jax.vmap(f)(seen[0]); jax.linearize(f, 1.); from jax.experimental.jet import jet; jet(f, (1.,), ([1.],)); "
     "assert {type(x).__module__.split('.')[0] for x in seen} == {'jax'} and jnp.__name__ == 'jax.numpy' and len(seen) == 6; "
     "import sys; assert issubclass(type(seen[1]), sys.modules['jax.core'].Tracer) and 'jax.numpy' in sys.modules; "
     "import pickle; assert (pickle.loads(pickle.dumps(seen[0])) == 1).all() and pickle.loads(pickle.dumps(jax.Array)) is jax.Array"),
    ("import jax, jax.numpy as jnp; d, = jax.devices(); assert isinstance(d, jax.Device) and not isinstance(3, jax.Device) and "
     "isinstance(jnp.ones(1).device, jax.Device); x: jax.Device | None = None"),
    ("from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel, splash_attention_mask"),
    ("import sys, jax; jax.lax; assert {'jax.core', 'jax.numpy', 'jax.lax'} <= set(sys.modules)"),
    ("import jax, pickle; x = jax.numpy.ones(2); assert x.__array_namespace__() is jax.numpy and jax.numpy.__name__ == 'jax.numpy'; "
     "from jax.numpy import linalg, fft; import aot.numpy.linalg; assert linalg is aot.numpy.linalg; "
     "assert pickle.loads(pickle.dumps(jax.numpy.sin)) is jax.numpy.sin"),
    ("from jax._src.tree_util import prefix_errors as p; e, = p({'a': (1, 2)}, {'a': [1, 2]}); assert \"x['a']\" in str(e('x'))"),
]


@pytest.mark.parametrize("code", NAMES)
def test_names(code, tmp_path):
    done = run(f"import aot.as_jax\n{code}", tmp_path)
    assert not done.returncode, done.stderr


MISTAKES = [
    ("import aot.as_jax, jax; jax.nothing", "AttributeError: module 'jax' has no attribute 'nothing'; it is aot"),
    ("import aot.as_jax; import jax.nothing", "ModuleNotFoundError: No module named 'jax.nothing'"),
    ("import aot.as_jax; from jax._src.core import nothing", "ImportError: cannot import name 'nothing' from 'jax._src.core'"),
    ("import aot.as_jax, jax._src.core as c; c.nothing", "private in jax, and aot has nothing in its place.*hint: use the public API"),
    ("import aot.as_jax; import jax._src.nothing", "ModuleNotFoundError: No module named 'jax._src.nothing'"),
    ("import aot.as_jax; from jax.interpreters import pxla; pxla.Thing(1)", "NotImplementedError: .*interpreters.pxla.Thing is not supp"),
    ("import aot.as_jax; from jax.experimental import pallas as pl; pl.pallas_call(len)",
     "NotImplementedError: .*pallas.pallas_call is not supported by aot.*hint: leave out"),
    ("import types, sys; sys.modules['jax'] = types.ModuleType('jax'); import aot.as_jax",
     "AotError: jax is imported already.*\n.*hint: `import aot.as_jax` before"),
]


@pytest.mark.parametrize("code, text", MISTAKES, ids=[r[0] for r in MISTAKES])
def test_mistakes(code, text, tmp_path):
    done = run(code, tmp_path)
    assert done.returncode == 1 and re.search(text, done.stderr), done.stderr


# ---- commands --------------------------------------------------------------------------------------------------------

MODULE = "import jax\nimport jax.numpy as jnp\n\ndef f(x):\n    return jax.nn.softmax(jnp.sin(x) @ jnp.ones((3, 2)))\n"


def aot_command(folder: Path, *args: str) -> subprocess.CompletedProcess:
    env = {**os.environ, "JAX_PLATFORMS": "cpu"}
    return subprocess.run([sys.executable, "-P", "-m", "aot.cli", *args], capture_output=True, text=True, cwd=folder, env=env)


def test_a_module_that_imports_jax_is_compiled_as_it_stands(tmp_path):
    (tmp_path / "model.py").write_text(MODULE)
    done = aot_command(tmp_path, "compile", "--as-jax", "model.py:f", "-a", "f32[4,3]", "-o", "f.aot")
    assert not done.returncode, done.stderr
    done = run("import aot_runtime, numpy as np, sys; print(aot_runtime.load('f.aot')['f'](np.ones((4, 3), np.float32)).tolist());"
               "assert 'jax' not in sys.modules", tmp_path)
    assert not done.returncode, done.stderr
    assert json.loads(done.stdout) == [[.5, .5]] * 4


def test_so_is_a_project(tmp_path):
    (tmp_path / "model.py").write_text(MODULE + "\nimport aot\n\n@aot.entry(args=['f32[3]'])\ndef g(x):\n    return jnp.cos(x)\n")
    text = '[project]\nname = "p"\nmodules = ["model.py"]\n{}\n[[function]]\nfunction = "model.py:f"\nargs = ["f32[4,3]"]\n'
    (tmp_path / "aot.toml").write_text(text.format("as_jax = true"))
    done = aot_command(tmp_path, "build")
    assert not done.returncode, done.stderr
    assert sorted(p.name for p in (tmp_path / "build").glob("?.aot")) == ["f.aot", "g.aot"]
    done = aot_command(tmp_path, "cache", "explain", "f")
    assert not done.returncode, done.stderr
    again = aot_command(tmp_path, "build", "--message-format", "json")
    assert [json.loads(line)["reason"] for line in again.stdout.splitlines()].count("fresh") == 2, again.stdout


@pytest.mark.parametrize("absent", [True, False])
def test_without_it_there_is_a_hint(tmp_path, absent):
    (tmp_path / "model.py").write_text(MODULE)
    if absent:
        (tmp_path / "jax.py").write_text("raise ModuleNotFoundError(\"No module named 'jax'\", name='jax')\n")
    elif not jax:
        pytest.skip("jax is not installed")
    done = aot_command(tmp_path, "trace", "model.py:f", "-a", "f32[4,3]")
    assert done.returncode == 4 and "hint: " in done.stderr and "--as-jax" in done.stderr, done.stderr


# ---- libraries -------------------------------------------------------------------------------------------------------

HEAD = """
import json, sys, warnings
warnings.simplefilter("ignore")
import jax, jax.numpy as jnp, numpy as np
x = jnp.linspace(-1., 1., 12).reshape(4, 3)
key = jax.random.key(0)
"""
#: library -> a program that leaves its results in `out`
PROGRAMS = {
    "optax": """
import optax
params = {"w": jnp.ones((3, 2)), "b": jnp.zeros(2)}
opt = optax.chain(optax.clip_by_global_norm(1.), optax.adamw(optax.warmup_cosine_decay_schedule(0., .1, 2, 10)))
loss = lambda p: optax.softmax_cross_entropy_with_integer_labels(x @ p["w"] + p["b"], jnp.array([0, 1, 1, 0])).mean()
state = opt.init(params)
@jax.jit
def step(params, state):
    updates, state = opt.update(jax.grad(loss)(params), state, params)
    return optax.apply_updates(params, updates), state
for _ in range(4):
    params, state = step(params, state)
out = params, loss(params)
""",
    "flax.linen": """
import flax.linen as nn
class Net(nn.Module):
    @nn.compact
    def __call__(self, x, train):
        x = nn.BatchNorm(use_running_average=not train)(nn.Dense(5)(x))
        x = nn.Dropout(.5, deterministic=not train)(nn.gelu(x))
        return nn.RNN(nn.LSTMCell(4))(nn.SelfAttention(1)(x[None]))
net = Net()
variables = net.init({"params": key, "dropout": key}, x, True)
def loss(params):
    y, state = net.apply({**variables, "params": params}, x, True, rngs={"dropout": key}, mutable=["batch_stats"])
    return (y ** 2).sum(), state
out = jax.jit(jax.value_and_grad(loss, has_aux=True))(variables["params"]), net.apply(variables, x, False)
""",
    "flax.nnx": """
from flax import nnx
class Net(nnx.Module):
    def __init__(self, rngs):
        self.a, self.norm, self.b = nnx.Linear(3, 5, rngs=rngs), nnx.BatchNorm(5, rngs=rngs), nnx.Linear(5, 2, rngs=rngs)
    def __call__(self, x): return self.b(nnx.relu(self.norm(self.a(x))))
net = Net(nnx.Rngs(0))
@nnx.jit
def step(net, x): return nnx.value_and_grad(lambda net: (net(x) ** 2).mean())(net)
out = step(net, x), nnx.state(net), jax.tree.map(jnp.sum, nnx.split(net)[1])
""",
    "haiku": """
import haiku as hk
net = hk.transform_with_state(lambda x: hk.nets.MLP([4, 2])(hk.BatchNorm(True, True, .9)(x, True)) + hk.Linear(2)(hk.LayerNorm(-1, True, True)(x)))
params, state = net.init(key, x)
out = jax.jit(jax.grad(lambda p: net.apply(p, state, key, x)[0].sum()))(params), net.apply(params, state, key, x)
""",
    "equinox": """
import equinox as eqx
net = eqx.nn.Sequential([eqx.nn.Linear(3, 4, key=key), eqx.nn.Lambda(jax.nn.relu), eqx.nn.LayerNorm(4), eqx.nn.MLP(4, 2, 5, 2, key=key)])
out = eqx.filter_jit(eqx.filter_value_and_grad(lambda net: jax.vmap(net)(x).sum()))(net)
out = jax.tree.leaves(eqx.filter(out, eqx.is_array)), eqx.filter_jit(lambda v: eqx.error_if(v, v.sum() > 99, "large"))(x)
""",
    "diffrax": """
import diffrax
term = diffrax.ODETerm(lambda t, y, a: jnp.stack([y[1], -a * jnp.sin(y[0])]))
def end(a, adjoint=diffrax.RecursiveCheckpointAdjoint()):
    return diffrax.diffeqsolve(term, diffrax.Tsit5(), 0., 1., .1, jnp.array([1., 0.]), args=a, adjoint=adjoint,
                               stepsize_controller=diffrax.PIDController(rtol=1e-5, atol=1e-6)).ys[-1]
out = end(2.), jax.jacrev(end)(2.), jax.vmap(end)(jnp.arange(1., 3.)), jax.jvp(lambda a: end(a, diffrax.ForwardMode()), (2.,), (1.,))
""",
    "lineax": """
import lineax as lx
a = jnp.eye(3) * 4 + jnp.ones((3, 3))
solve = lambda a, b, s: lx.linear_solve(lx.MatrixLinearOperator(a, lx.positive_semidefinite_tag), b, s).value
out = [solve(a, x[0], s) for s in (lx.LU(), lx.QR(), lx.Cholesky(), lx.CG(1e-6, 1e-6), lx.GMRES(1e-6, 1e-6))]
out = out, jax.grad(lambda a: solve(a, x[0], lx.CG(1e-6, 1e-6)).sum())(a), jax.vmap(lambda b: solve(a, b, lx.LU()))(x)
""",
    "optimistix": """
import optimistix as optx
f = lambda y, a: jnp.stack([y[0] ** 2 + y[1] - a, y[0] - y[1] ** 3])
root = lambda a: optx.root_find(f, optx.Newton(1e-6, 1e-6), jnp.ones(2), args=a).value
out = root(2.), jax.jacrev(root)(2.), optx.minimise(lambda y, _: ((y - 2) ** 4).sum(), optx.BFGS(1e-6, 1e-6), jnp.zeros(2)).value
""",
}
TAIL = """
leaves = [np.asarray(v, dtype=np.float64).tolist() for v in jax.tree.leaves(out) if jnp.issubdtype(jnp.asarray(v).dtype, jnp.number)]
print(json.dumps(leaves))
"""


@pytest.mark.parametrize("library", PROGRAMS)
def test_libraries_compute_what_they_compute_on_jax(library, tmp_path):
    pytest.importorskip("jax") if jax else pytest.skip("compares with jax, which is not installed")
    ours, theirs = (run(head + HEAD + PROGRAMS[library] + TAIL, tmp_path) for head in ("import aot.as_jax\n", ""))
    assert not theirs.returncode, theirs.stderr
    assert not ours.returncode, ours.stderr
    a, b = json.loads(ours.stdout.splitlines()[-1]), json.loads(theirs.stdout.splitlines()[-1])
    assert len(a) == len(b) > 0
    for p, q in zip(a, b):
        np.testing.assert_allclose(p, q, rtol=2e-4, atol=2e-5)


SOLVES = """
import jax.numpy as jnp, lineax as lx, optimistix as optx
def linear(x): return lx.linear_solve(lx.MatrixLinearOperator(x), x[0]).value
def root(x): return optx.root_find(lambda y, a: y ** 3 + y - 2, optx.Newton(1e-6, 1e-6), x).value
"""


@pytest.mark.parametrize("function", ["linear", "root"])
def test_checks_of_solvers_are_left_out_of_artifacts_where_asked_for(function, tmp_path, monkeypatch):
    pytest.importorskip("optimistix")
    (tmp_path / "solves.py").write_text(SOLVES)
    commands = [(c, "--as-jax", f"solves.py:{function}", "-a", "f32[3,3]") for c in ("compile", "check")]
    refused, found = (aot_command(tmp_path, *c) for c in commands)
    assert refused.returncode == 1 and re.search(r"\.py:\d+ .*: pure\nhint: .*EQX_ON_ERROR=nan", refused.stderr), refused.stderr
    assert found.returncode == 3 and "host callback" in found.stdout, found.stdout
    monkeypatch.setenv("EQX_ON_ERROR", "nan")
    done = aot_command(tmp_path, *commands[0])
    assert not done.returncode, done.stderr


# ---- the page --------------------------------------------------------------------------------------------------------

def test_programs_of_the_page(tmp_path):
    text = PAGE.read_text()
    first, module, own = re.findall(r"```python\n([\s\S]*?)```", text)
    assert run(first + "import jax", tmp_path).returncode == 0
    done = run(own, tmp_path)
    assert done.stdout == "[3. 3.]\n", done.stderr
    pytest.importorskip("equinox")
    (tmp_path / "classify.py").write_text(module)
    command = re.search(r"\$ aot (compile --as-jax classify.*)", text)
    assert command is not None
    done = aot_command(tmp_path, *command[1].replace("'", "").split())
    assert not done.returncode and (tmp_path / "classify.aot").exists(), done.stderr


def test_the_option_is_in_the_help(capsys):
    assert main(["compile", "--help"]) == 0
    assert "--as-jax" in capsys.readouterr().out


def test_the_example(tmp_path):
    pytest.importorskip("flax")
    shutil.copytree(ROOT / "examples" / "libraries", tmp_path / "libraries")
    env = {**os.environ, "PATH": f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(["make"], cwd=tmp_path / "libraries", env=env, capture_output=True, text=True)
    assert not done.returncode, done.stderr
    assert int(re.findall(r"right: (\d+)%", done.stdout)[0]) > 90 and (tmp_path / "libraries" / "classifier.onnx").exists()
