"""The C loader: builds, runs what the Python loader runs with the same results, refuses what it must, and stays flat.

Needs a C compiler; the plugin comes from PyPI, and not getting it is a failure.
"""
from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from types import SimpleNamespace

import numpy as np
import pytest

import aot_runtime
from tests import c_loader
from tests.c_loader import C99, FUNCTIONS, C, run

pytestmark = pytest.mark.skipif(c_loader.CC is None, reason="there is no C compiler")


@pytest.fixture(scope="module")
def plugin():
    return c_loader.plugin()


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    return c_loader.install(tmp_path_factory.mktemp("c"))


@pytest.fixture(scope="module")
def aot_run(installed):
    return installed / "bin" / "aot-run"


@pytest.fixture(scope="module")
def artifact(tmp_path_factory, plugin):
    return c_loader.project(tmp_path_factory.mktemp("project"), [f"pjrt:{plugin}", "cpu"])


@pytest.fixture(scope="module")
def reference(tmp_path_factory, artifact, plugin):
    """A folder with inputs of every function, and what the Python loader makes of them through the same plugin."""
    folder, rng = tmp_path_factory.mktemp("reference"), np.random.default_rng(0)
    for name, spec in aot_runtime.load(artifact).manifest["functions"].items():
        for i, x in enumerate(c_loader.inputs_of(spec["inputs"], rng)):
            np.save(folder / f"{name}.in.{i}.npy", x)
    done = run(sys.executable, "-c", c_loader.REFERENCE, artifact, f"pjrt:{plugin}", folder)
    assert not done.returncode, done.stderr
    return folder


@pytest.fixture
def loader(aot_run, artifact, plugin, reference):
    """Calls of aot-run on the artifact."""
    def call(name, *options, file=artifact):
        count = len(aot_runtime.load(artifact).manifest["functions"][name]["inputs"])
        return run(aot_run, file, name, "--plugin", plugin, *[reference / f"{name}.in.{i}.npy" for i in range(count)], *options)
    return SimpleNamespace(call=call, aot_run=aot_run, artifact=artifact, plugin=plugin, reference=reference)


def bits(path):
    x = np.load(path)
    return x.dtype, x.shape, x.tobytes()


# ---- building ------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("source", ["aot_runtime.c", "tools/aot_run.c", "tests/fuzz.c", "tests/stress.c"])
@pytest.mark.parametrize("level", ["-O0", "-O2"])
def test_builds_as_c99_without_warnings(tmp_path, source, level):
    done = run(c_loader.CC, *C99, level, "-c", C / source, "-o", tmp_path / "x.o")
    assert not done.returncode, done.stderr


@pytest.mark.skipif(c_loader.CXX is None, reason="there is no C++ compiler")
@pytest.mark.parametrize("standard", ["c++17", "c++20"])
def test_the_header_is_c_plus_plus(tmp_path, standard):
    source = tmp_path / "x.cpp"
    source.write_text('#include "aot_runtime.hpp"\n#include "aot_runtime.hpp"\nint main() { return AOT_OK; }\n')
    done = run(c_loader.CXX, f"-std={standard}", "-Wall", "-Wextra", "-Werror", "-pedantic", f"-I{C}", "-fsyntax-only", source)
    assert not done.returncode, done.stderr


def test_the_library_exports_its_own_names_only(installed):
    symbols = run("nm", "-D", "--defined-only", installed / "lib" / "libaot_runtime.so").stdout.split()[2::3]
    assert symbols and all(s.startswith("aot_") for s in symbols)


@pytest.mark.skipif(c_loader.CXX is None, reason="there is no C++ compiler")
def test_examples_with_make_and_pkg_config(tmp_path, installed, plugin):
    shutil.copytree(c_loader.ROOT / "examples" / "c_loader", tmp_path / "ex")
    env = {**c_loader.QUIET, "PKG_CONFIG_PATH": f"{installed}/lib/pkgconfig",
           "PATH": f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"}
    done = subprocess.run(["make", "-s", f"PLUGIN={plugin}", "CFLAGS=-Wall -Werror", "CXXFLAGS=-Wall -Werror"], cwd=tmp_path / "ex",
                          env=env, capture_output=True, text=True)
    assert not done.returncode, done.stderr
    rows = np.array([line.split() for line in done.stdout.splitlines()[-16:]], float)
    assert np.array_equal(rows[:8], rows[8:]) and np.allclose(rows.sum(1), 1, atol=2e-4)


@pytest.mark.skipif(not (shutil.which("cmake") and c_loader.CXX), reason="there is no cmake")
def test_examples_with_cmake(tmp_path, installed):
    for step in (["-S", c_loader.ROOT / "examples" / "c_loader", "-B", tmp_path, f"-DCMAKE_PREFIX_PATH={installed}"], ["--build", tmp_path]):
        done = run("cmake", *step)
        assert not done.returncode, done.stdout + done.stderr
    done = run(tmp_path / "main_cpp", "missing.aot", "missing.so")
    assert done.returncode == 1 and done.stderr.startswith("error: missing.so: no such plugin")


@pytest.mark.skipif(not shutil.which("cmake"), reason="there is no cmake")
def test_as_a_part_of_a_cmake_project(tmp_path):
    (tmp_path / "main.c").write_text("#include <aot_runtime.h>\nint main(void) { return aot_dtype_size(AOT_F32) != 4; }\n")
    (tmp_path / "CMakeLists.txt").write_text(
        f"cmake_minimum_required(VERSION 3.13)\nproject(p LANGUAGES C)\nadd_subdirectory({C} loader)\n"
        "add_executable(p main.c)\ntarget_link_libraries(p aot_runtime::aot_runtime)\n")
    for step in (["-S", tmp_path, "-B", tmp_path / "b"], ["--build", tmp_path / "b"]):
        done = run("cmake", *step)
        assert not done.returncode, done.stdout + done.stderr
    assert run(tmp_path / "b" / "p").returncode == 0


# ---- results -------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_are_those_of_the_python_loader(tmp_path, loader, name):
    done = loader.call(name, "--strict", "-o", tmp_path / "got")
    assert not done.returncode, done.stderr
    outputs = aot_runtime.load(loader.artifact).manifest["functions"][name]["outputs"]
    for i, e in enumerate(outputs):
        dtype, shape, data = bits(tmp_path / f"got.{i}.npy")
        assert (shape, data) == bits(loader.reference / f"{name}.want.{i}.npy")[1:]
        assert dtype.kind == "V" or dtype.name == e.get("data", e)["dtype"]


@pytest.mark.parametrize("name", ["mlp", "mlp1", "twice_bf16", "draw", "donate", "many", "order", "conv"])
def test_the_program_is_compiled_where_no_executable_fits(tmp_path, loader, name):
    """The same results as those of the executable, from StableHLO."""
    file = rewritten(loader.artifact, tmp_path / "p.aot", lambda m: [f["executables"].clear() for f in m["functions"].values()])
    done = loader.call(name, "-o", tmp_path / "got", file=file)
    assert not done.returncode and "compiled its StableHLO" not in done.stderr, done.stderr  # there was nothing to pass over
    for i, want in enumerate(sorted(loader.reference.glob(f"{name}.want.*.npy"))):
        assert bits(tmp_path / f"got.{i}.npy") == bits(want)
    done = loader.call(name, "--strict", file=file)
    assert done.returncode == 1 and "no executable for this host (it holds no executable)" in done.stderr


@pytest.mark.parametrize("edit", [lambda m: None, lambda m: m["functions"]["mlp"].update(executables=[])], ids=["executable", "program"])
def test_another_device(tmp_path, loader, edit):
    file = rewritten(loader.artifact, tmp_path / "a.aot", edit)
    done = loader.call("mlp", "--device", 3, "-o", tmp_path / "got", file=file)
    assert not done.returncode and bits(tmp_path / "got.0.npy") == bits(loader.reference / "mlp.want.0.npy"), done.stderr
    done = loader.call("mlp", "--device", 4, file=file)
    assert done.returncode == 1 and "has 4 devices, device 4 was asked for" in done.stderr


def test_flags_of_the_compiler_reach_the_plugin(tmp_path, loader):
    def add(value):
        def edit(m):
            m["functions"]["mlp"] |= {"executables": [], "xla_flags": {"xla_cpu_enable_fast_math": value}}
        return edit
    for value in (True, False):
        done = loader.call("mlp", file=rewritten(loader.artifact, tmp_path / "a.aot", add(value)))
        assert not done.returncode, done.stderr
    def unknown(m): m["functions"]["mlp"] |= {"executables": [], "xla_flags": {"xla_no_such_flag": 1}}
    done = loader.call("mlp", file=rewritten(loader.artifact, tmp_path / "a.aot", unknown))
    assert done.returncode == 1 and "xla_no_such_flag" in done.stderr


def test_nothing_but_results_is_printed(loader):
    env = {k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"}
    command = [str(loader.aot_run), str(loader.artifact), "nothing", "--plugin", loader.plugin, "--strict"]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("result: int32[5] 0 1 2 3 4\n", "")


def test_recorded_results(loader):
    done = run(loader.aot_run, loader.artifact, "mlp", "--plugin", loader.plugin, "--golden")
    assert not done.returncode, done.stderr
    assert done.stdout.startswith("result: float32[8,4] ")
    assert float(done.stdout.split("recorded result:")[1]) < 1e-5


def test_factorizations_need_no_kernels(tmp_path, loader):
    assert not loader.call("solve", "--strict", "-o", tmp_path / "got").returncode
    x, b = (np.load(loader.reference / f"solve.in.{i}.npy") for i in range(2))
    assert np.allclose(np.load(tmp_path / "got.0.npy"), np.linalg.solve(x, b))
    assert np.allclose(np.load(tmp_path / "got.1.npy"), np.linalg.eigvalsh(x @ x.T))


def test_weights_in_a_separate_file(tmp_path, loader):
    functions = {"mlp": ("mlp", ["f32[8,16]"], {"weights": "params.npz", "weights_mode": "separate"})}
    file = c_loader.project(tmp_path, [f"pjrt:{loader.plugin}"], functions)
    done = loader.call("mlp", "-o", tmp_path / "got", file=file)
    assert not done.returncode, done.stderr
    assert bits(tmp_path / "got.0.npy") == bits(loader.reference / "mlp.want.0.npy")

    from safetensors.numpy import load_file, save_file
    stored, = file.parent.glob("*.safetensors")
    arrays = {k: v for k, v in load_file(stored).items() if not k.startswith("__pad")}
    save_file({k: v * 0 for k, v in arrays.items()}, tmp_path / "zeros.safetensors")
    assert not loader.call("mlp", "--weights", tmp_path / "zeros.safetensors", "-o", tmp_path / "got", file=file).returncode
    assert not np.load(tmp_path / "got.0.npy").any()
    save_file({k: v[:1].copy() for k, v in arrays.items()}, tmp_path / "short.safetensors")
    done = loader.call("mlp", "--weights", tmp_path / "short.safetensors", file=file)
    assert done.returncode == 1 and "another type than the programs take" in done.stderr
    stored.unlink()
    done = loader.call("mlp", file=file)
    assert done.returncode == 1 and f"{stored}: no such file" in done.stderr
    done = loader.call("mlp", "--weights", tmp_path / "zeros.safetensors")
    assert done.returncode == 1 and "its weights are not in a separate file" in done.stderr


# ---- what is refused -----------------------------------------------------------------------------------------------

def rewritten(source, target, edit):
    """A copy whose manifest was edited; every checksum in it is right."""
    from aot.artifact import add_member
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        manifest = json.loads(old.read("manifest.json"))
        edit(manifest)
        for name in manifest["members"]:
            manifest["members"][name] |= add_member(new, name, [old.read(name)])
        add_member(new, "manifest.json", [json.dumps(manifest, indent=1, sort_keys=True).encode()])
    return target


WRONG_INPUTS = [(np.zeros((8, 15), "f"), "x: expected f32[8,16], got f32[8,15]"), (np.zeros((8, 16)), "x: expected f32[8,16], got f64[8,16]"),
                (np.zeros(128, "f"), "x: expected f32[8,16], got f32[128]"), (np.zeros((8, 16), ">f4"), "its dtype is not supported"),
                (np.zeros((16, 8), "f").T, "it is in Fortran order"), (np.array(["a"]), "its dtype is not supported"),
                (np.array([None]), "its dtype is not supported")]


@pytest.mark.parametrize("x, message", WRONG_INPUTS, ids=[m for _, m in WRONG_INPUTS])
def test_inputs_that_do_not_fit(tmp_path, loader, x, message):
    np.save(tmp_path / "x.npy", x)
    done = run(loader.aot_run, loader.artifact, "mlp", "--plugin", loader.plugin, tmp_path / "x.npy")
    assert done.returncode == 1 and message in done.stderr


COMMAND_LINES = [
    ([], 2, "no artifact was given"), (["missing.aot"], 1, "missing.aot: no such file"), (["{c}"], 1, "cannot be read: not a regular file"),
    (["{a}", "mlp"], 2, "needs --plugin"), (["{a}", "nope", "--plugin", "{p}"], 1, "no function 'nope'\nhint: it has: "),
    (["{a}", "mlp", "--plugin", "{p}"], 1, "mlp: takes 1 arrays and returns 1, got 0 and 1"),
    (["{a}", "mlp", "--plugin", "missing.so"], 1, "missing.so: no such plugin"), (["{a}", "--nope"], 2, "there is no option --nope"),
    (["{a}", "mlp", "--plugin", "{a}"], 1, "cannot be loaded: "), (["{a}", "--plugin"], 2, "a value is missing"),
    (["{a}", "mlp", "--plugin", "{p}", "--repeat", "-1"], 2, "--repeat takes a number"),
    (["{a}", "mlp", "--plugin", "{p}", "{a}"], 1, "it is no .npy file"),
    (["{a}", "mlp", "--plugin", "{p}", "--option", "x"], 2, "--option takes NAME=VALUE"),
    (["{p}"], 1, "not an .aot artifact (not a zip file)")]


@pytest.mark.parametrize("arguments, code, message", COMMAND_LINES, ids=[m for *_, m in COMMAND_LINES])
def test_command_lines(loader, arguments, code, message):
    names = {"a": loader.artifact, "p": loader.plugin, "c": C}
    done = run(loader.aot_run, *[a.format(**names) for a in arguments])
    assert done.returncode == code and message in done.stderr and done.stderr.startswith("error: ")


FAKES = [([], 1, "cannot make a client: No visible devices\n"), (["-DOLD"], 1, "its PJRT C API 0.3 is not supported\nhint: use a plugin"),
         (["-DHANGS"], 1, "did not make a client within 1000 ms\nhint: libtpu")]


@pytest.mark.parametrize("flags, code, message", FAKES, ids=[m for *_, m in FAKES])
def test_plugins_that_misbehave(tmp_path, loader, flags, code, message):
    fake = c_loader.compile_c(tmp_path / "fake.so", C / "tests" / "fake_plugin.c", flags=["-std=c99", "-shared", "-fPIC", *flags])
    done = run(loader.aot_run, loader.artifact, "mlp", "--plugin", fake, "--timeout", 1)
    assert done.returncode == code and message in done.stderr


def test_a_library_that_is_no_plugin(tmp_path, loader):
    (tmp_path / "x.c").write_text("int x;\n")
    library = c_loader.compile_c(tmp_path / "x.so", tmp_path / "x.c", flags=["-shared", "-fPIC"])
    done = run(loader.aot_run, loader.artifact, "mlp", "--plugin", library)
    assert done.returncode == 1 and "not a PJRT plugin: it has no GetPjrtApi" in done.stderr


def test_an_executable_of_another_plugin_is_not_tried(tmp_path, loader):
    """One byte more makes another plugin, although it would run."""
    other = tmp_path / "other.so"
    shutil.copy(loader.plugin, other)
    with other.open("ab") as f:
        f.write(b"\0")
    why = "built with the plugin of sha256 ad1309ac822b..., other.so has "
    done = run(loader.aot_run, loader.artifact, "mlp", "--plugin", other, "--strict", loader.reference / "mlp.in.0.npy")
    assert done.returncode == 1 and why in done.stderr and "no executable for this host" in done.stderr
    done = run(loader.aot_run, loader.artifact, "mlp", "--plugin", other, loader.reference / "mlp.in.0.npy", "-o", tmp_path / "got")
    assert done.returncode == 0 and why in done.stderr and "compiled its StableHLO for this host" in done.stderr
    assert bits(tmp_path / "got.0.npy") == bits(loader.reference / "mlp.want.0.npy")
    done = run(loader.aot_run, loader.artifact, "--explain", "--plugin", other)
    assert why in done.stdout and "stablehlo: compiled here when the function is loaded" in done.stdout


def test_the_identity_of_a_plugin_follows_its_file(tmp_path, loader):
    """The remembered sha256 counts for an unchanged file only, and a damaged record for nothing."""
    other, cache = tmp_path / "other.so", tmp_path / "cache"
    shutil.copy(loader.plugin, other)
    env = {**c_loader.QUIET, "XDG_CACHE_HOME": str(cache)}

    def explain():
        command = [str(loader.aot_run), str(loader.artifact), "--explain", "--plugin", str(other)]
        return subprocess.run(command, env=env, capture_output=True, text=True).stdout
    assert "fits this host" in explain()
    record, = cache.glob("aot/plugins/*")
    good = record.read_text()
    record.write_text(good[:-65] + "0" * 64 + "\n")
    assert "0000" in explain().split("has ")[1]     # the record is believed, so it is in use
    for damaged in ("", "x", good[:-10], good.replace(" ", "\n")):
        record.write_text(damaged)
        assert "fits this host" in explain() and record.read_text() == good
    with other.open("ab") as f:
        f.write(b"\0")
    assert "fits this host" not in explain() and record.read_text() != good

    from aot.compile.pjrt import file_sha256
    shutil.copy(loader.plugin, other)
    pytest.MonkeyPatch().setenv("XDG_CACHE_HOME", str(cache))
    assert file_sha256(str(other)).startswith("ad1309ac")
    written = record.read_text()
    assert "fits this host" in explain() and record.read_text() == written   # C reads what Python wrote


def test_a_cpu_without_the_features_is_not_tried(tmp_path, loader):
    """What the host reports is edited: an executable for more is passed over, and the reason is told."""
    info = tmp_path / "cpuinfo"
    info.write_text("processor\t: 0\nflags\t\t: fpu sse sse2 pni ssse3 avx2x\n")
    mine = c_loader.compile_c(tmp_path / "aot-run", C / "tools" / "aot_run.c", C / "aot_runtime.c",
                              flags=[*C99, f'-DAOT_CPUINFO="{info}"'])
    done = run(mine, loader.artifact, "mlp", "--plugin", loader.plugin, loader.reference / "mlp.in.0.npy")
    assert done.returncode == 0 and "needs CPU features that this host lacks: " in done.stderr and "compiled its StableHLO" in done.stderr
    assert "avx2" in done.stderr or os.uname().machine != "x86_64"
    done = run(mine, loader.artifact, "mlp", "--plugin", loader.plugin, "--strict", loader.reference / "mlp.in.0.npy")
    assert done.returncode == 1 and "needs CPU features" in done.stderr
    info.unlink()
    done = run(mine, loader.artifact, "--explain", "--plugin", loader.plugin)
    assert "CPU features could not be read" in done.stdout


def executable_of(m, name="mlp"): return next(e for e in m["functions"][name]["executables"] if e["platform"] == "pjrt")
def set_machine(m): executable_of(m)["machine"] = "riscv64"
def set_feature(m): executable_of(m)["cpu_features"].append("avx512_from_the_future")
def set_schema(m): m["schema"] = 99
def set_format(m): m["format"] = "zip"
def set_output(m): m["functions"]["mlp"]["outputs"][0]["shape"] = [4, 8]
def add_output(m): m["functions"]["mlp"]["outputs"] *= 2
def set_parameter(m): m["functions"]["mlp"]["parameters"][0] = 0
def lose_parameter(m): m["functions"]["mlp"]["parameters"].pop()
def set_weight(m): m["functions"]["mlp"]["parameters"] = ["nope" if isinstance(p, str) else p for p in m["functions"]["mlp"]["parameters"]]
def set_dtype(m): m["functions"]["mlp"]["inputs"][0]["dtype"] = "float1"
def set_shape(m): m["functions"]["mlp"]["inputs"][0]["shape"] = [2**40, 2**40]
def set_members(m): m["functions"]["mlp"]["executables"] = [{**executable_of(m), "member": "nope"}]
def use_lapack(m): m["functions"]["mlp"] |= {"executables": [], "custom_calls": ["lapack_sgetrf_ffi"]}
def be_sharded(m): m["functions"]["mlp"]["devices"] = 4
def add_unknown(m):
    m["something"] = m["functions"]["mlp"]["more"] = executable_of(m)["extra"] = [{"new": [1.5, None, True, "ä\u2028"]}]


EDITS = [(set_machine, "built for riscv64, this machine is "), (set_feature, "lacks: avx512_from_the_future"),
         (set_schema, "written with manifest schema 99, this loader reads up to 1\nhint: use a newer loader"),
         (set_format, "not an .aot artifact"), (set_output, "returns something else than the manifest says"),
         (add_output, "returns something else than the manifest says"), (set_parameter, "manifest.json: damaged: mlp: parameters"),
         (lose_parameter, "manifest.json: damaged: mlp: parameters"), (set_weight, "a parameter names a weight that is not there"),
         (set_dtype, "manifest.json: damaged: mlp: inputs x: dtype float1"), (set_shape, "manifest.json: damaged: mlp: inputs x"),
         (set_members, "nope: the member is missing"),
         (use_lapack, "calls lapack_sgetrf_ffi, a LAPACK kernel of jaxlib that plugins do not have\nhint: use the Python loader"),
         (be_sharded, "runs on 4 devices, this loader on one"), (add_unknown, "")]


@pytest.mark.parametrize("edit, message", EDITS, ids=[e.__name__ for e, _ in EDITS])
def test_manifests_that_say_something_else(tmp_path, loader, edit, message):
    file = rewritten(loader.artifact, tmp_path / "edited.aot", edit)
    strict = [] if edit is use_lapack else ["--strict"]
    done = loader.call("mlp", *strict, file=file)
    assert done.returncode == bool(message) and message in done.stderr
    if message:
        assert "edited.aot" in done.stderr or "mlp" in done.stderr


def chunks(change=lambda c: None, size=1000):
    """An edit of the manifest: the weights have a hash of every `size` bytes, and those are changed."""
    def edit(m, data):
        c = m["members"]["weights"]["chunks"] = {"size": size, "sha256": [
            hashlib.sha256(data[i:i + size]).hexdigest() for i in range(0, len(data), size)]}
        change(c)
    return edit


CHUNKS = {"right": (chunks(), True), "one": (chunks(size=1 << 30), True), "one byte each": (chunks(size=1), True),
          "first wrong": (chunks(lambda c: c["sha256"].__setitem__(0, "0" * 64)), False),
          "last wrong": (chunks(lambda c: c["sha256"].__setitem__(-1, "0" * 64)), False),
          "one missing": (chunks(lambda c: c["sha256"].pop()), False),
          "one too many": (chunks(lambda c: c["sha256"].append("0" * 64)), False),
          "none": (chunks(lambda c: c["sha256"].clear()), False),
          "not a text": (chunks(lambda c: c["sha256"].__setitem__(1, 7)), False)}


@pytest.mark.parametrize("edit, good", CHUNKS.values(), ids=CHUNKS)
def test_hashes_of_chunks(tmp_path, loader, edit, good):
    with zipfile.ZipFile(loader.artifact) as z:
        data = z.read("weights")
    assert len(data) > 1000
    file = rewritten(loader.artifact, tmp_path / "edited.aot", lambda m: edit(m, data))
    done = run(loader.aot_run, file, "--verify")
    assert done.returncode != good and (good or "weights: damaged: it does not match its sha256" in done.stderr)


def test_members_that_are_not_in_the_manifest_are_tolerated(tmp_path, loader):
    from aot.artifact import add_member
    shutil.copy(loader.artifact, tmp_path / "a.aot")
    with zipfile.ZipFile(tmp_path / "a.aot", "a") as z:
        add_member(z, "signatures.json", [b"{}"])
    assert loader.call("mlp", "--strict", file=tmp_path / "a.aot").returncode == 0


def symlink(z, info): info.external_attr = 0o120777 << 16
def compressed(z, info): info.compress_type = zipfile.ZIP_DEFLATED
def outside(z, info): info.filename = "../../etc/passwd"
def absolute(z, info): info.filename = "/etc/passwd"
def backslash(z, info): info.filename = "..\\x"
def escape(z, info): info.filename = "\x1b[31mx"


@pytest.mark.parametrize("spoil, message", [(symlink, "it is not a regular file"), (compressed, "it is compressed"),
                                            (outside, "a name that is not allowed"), (absolute, "a name that is not allowed"),
                                            (backslash, "a name that is not allowed"), (escape, "?[31mx: damaged: a name that")], ids=lambda x: getattr(x, "__name__", None))
def test_hostile_members(tmp_path, loader, spoil, message):
    shutil.copy(loader.artifact, tmp_path / "a.aot")
    with zipfile.ZipFile(tmp_path / "a.aot", "a") as z:
        info = zipfile.ZipInfo("extra")
        spoil(z, info)
        z.writestr(info, b"x" * 100)
    done = run(loader.aot_run, tmp_path / "a.aot")
    assert done.returncode == 1 and message in done.stderr


def test_duplicates_and_overlaps(tmp_path, loader):
    shutil.copy(loader.artifact, tmp_path / "a.aot")
    with zipfile.ZipFile(tmp_path / "a.aot", "a") as z, pytest.warns(UserWarning, match="Duplicate"):
        z.writestr("weights", b"x")
    done = run(loader.aot_run, tmp_path / "a.aot")
    assert done.returncode == 1 and "weights: damaged: it is there twice" in done.stderr
    with zipfile.ZipFile(tmp_path / "b.aot", "w") as z:
        z.writestr("a", b"x" * 64)
        z.writestr("b", b"y")
        z.filelist[1].header_offset = 0
        z.filelist[1].filename, z.filelist[1].orig_filename = "a", "a"
    done = run(loader.aot_run, tmp_path / "b.aot")
    assert done.returncode == 1 and "a: damaged: " in done.stderr


def test_truncated_files(tmp_path, loader):
    data, file = loader.artifact.read_bytes(), tmp_path / "t.aot"
    for size in [0, 1, 2, 100, len(data) - 1, len(data) - 22, *range(0, len(data), len(data) // 40 + 1)]:
        file.write_bytes(data[:size])
        done = run(loader.aot_run, file)
        assert done.returncode == 1 and done.stderr.startswith(f"error: {file}: "), (size, done.stderr)


@pytest.mark.parametrize("member", ["weights", "program/mlp.mlirbc", "exec/mlp/pjrt", "golden/mlp", "manifest.json"])
def test_a_damaged_member_is_named(tmp_path, loader, member):
    with zipfile.ZipFile(loader.artifact) as z:
        info = next(i for i in z.infolist() if i.filename.startswith(member))
        at = z.read(info.filename)
    data = bytearray(loader.artifact.read_bytes())
    data[bytes(data).index(at) + len(at) // 2] ^= 1
    (tmp_path / "d.aot").write_bytes(data)
    done = run(loader.aot_run, tmp_path / "d.aot", "--verify")
    assert done.returncode == 1 and f"d.aot: {info.filename}: damaged: " in done.stderr
    assert run(loader.aot_run, loader.artifact, "--verify").returncode == 0


# ---- fuzzing, threads, memory --------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def fuzz(tmp_path_factory):
    flags = [*C99, "-O2", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    return c_loader.compile_c(tmp_path_factory.mktemp("fuzz") / "fuzz", C / "tests" / "fuzz.c", flags=flags)


@pytest.fixture(scope="module")
def sample(tmp_path_factory, plugin):
    """A small artifact with a member of every kind."""
    functions = {k: FUNCTIONS[k] for k in ("mlp", "draw", "twice_bf16")}
    return c_loader.project(tmp_path_factory.mktemp("sample"), [f"pjrt:{plugin}", "cpu"], functions)


def test_mutated_artifacts_do_no_harm(fuzz, sample):
    done = run(fuzz, sample, os.environ.get("FUZZ_C", 2000), os.environ.get("FUZZ_SEED", 1), timeout=3600)
    assert not done.returncode, done.stderr
    valid = int(done.stdout.split(", ")[1].split()[0])
    assert 0 < valid < 0.6 * int(done.stdout.split()[0])


def test_every_flipped_bit_is_noticed(fuzz, sample):
    done = run(fuzz, sample, "flips", 2000)
    assert not done.returncode and "all refused" in done.stdout, done.stderr


@pytest.fixture(scope="module")
def stress(tmp_path_factory):
    return c_loader.compile_c(tmp_path_factory.mktemp("stress") / "stress", C / "tests" / "stress.c", C / "aot_runtime.c")


def test_sixteen_threads(stress, sample, plugin):
    done = run(stress, sample, plugin, 16, 10000)
    assert not done.returncode, done.stderr
    found = json.loads(done.stdout)
    assert found["calls"] == 160000 and found["wrong"] == 0 and found["growth"] < 2048


def test_reloading_leaves_nothing_behind(stress, sample, plugin):
    done = run(stress, sample, plugin, "reload", 200)
    assert not done.returncode, done.stderr
    assert json.loads(done.stdout)["growth"] < 4096


# ---- C++ -----------------------------------------------------------------------------------------------------------

@pytest.mark.skipif(c_loader.CXX is None, reason="there is no C++ compiler")
def test_cpp(tmp_path, loader, installed):
    done = run(c_loader.CXX, "-std=c++17", "-Wall", "-Wextra", "-Werror", "-pedantic", f"-I{installed}/include", C / "tests" / "api.cpp",
               f"{installed}/lib/libaot_runtime.a", "-o", tmp_path / "api", *c_loader.LIBS)
    assert not done.returncode, done.stderr
    done = run(tmp_path / "api", loader.artifact, loader.plugin)
    assert not done.returncode, done.stderr


def test_the_document(tmp_path, installed, plugin):
    """The program and the commands of docs/c.md, typed exactly."""
    text = (c_loader.ROOT / "docs" / "c.md").read_text()
    (tmp_path / "main.c").write_text(text.split("```c\n")[1].split("```")[0])
    shutil.copy(c_loader.ROOT / "examples" / "c_loader" / "model.py", tmp_path)
    commands = [line[6:] for line in text.splitlines() if line.startswith(("    $ aot", "    $ cc", "    $ ./a.out"))]
    env = {**c_loader.QUIET, "PLUGIN": plugin, "PKG_CONFIG_PATH": f"{installed}/lib/pkgconfig",
           "PATH": f"{installed}/bin:{os.path.dirname(sys.executable)}:{os.environ['PATH']}"}
    assert len(commands) == 8
    run(sys.executable, "model.py", cwd=tmp_path)
    np.save(tmp_path / "x.npy", np.ones((8, 16), "f"))
    for command in commands:
        done = subprocess.run(["bash", "-c", command], cwd=tmp_path, env=env, capture_output=True, text=True)
        assert not done.returncode, f"{command}\n{done.stderr}"
        if command.startswith("./a.out"):
            assert done.stdout.startswith("pjrt:pjrt_c_api_cpu_plugin.so@ad1309ac: ")


# ---- the target ----------------------------------------------------------------------------------------------------

def compile_with(tmp_path, target, function="twice", spec="f32[4]"):
    (tmp_path / "model.py").write_text(c_loader.MODEL + "def eig(x): return jnp.linalg.eigvals(x)\n")
    return run(sys.executable, "-m", "aot.cli", "compile", f"model.py:{function}", "--arg", spec, "-t", target, "-o", "x.aot", cwd=tmp_path)


def test_the_target_ties_the_executable_to_its_plugin(tmp_path, plugin):
    os.symlink(plugin, tmp_path / "here.so")
    done = compile_with(tmp_path, "pjrt:here.so:x86-64-v2" if os.uname().machine == "x86_64" else "pjrt:here.so")
    assert not done.returncode, done.stderr
    exe, = aot_runtime.load(tmp_path / "x.aot").manifest["functions"]["twice"]["executables"]
    assert exe["platform"] == "pjrt" and exe["plugin"].startswith("ad1309ac") and exe["plugin_api"] == "0.115"
    assert exe["target"].startswith("pjrt:here.so@ad1309ac") and str(tmp_path) not in (tmp_path / "x.aot").read_bytes().decode("latin1")
    assert os.uname().machine != "x86_64" or "avx2" not in exe["cpu_features"]


@pytest.mark.parametrize("target, function, spec, message", [
    ("pjrt:missing.so", "twice", "f32[4]", "missing.so\nhint: pjrt:PATH names"), ("pjrt:model.py", "twice", "f32[4]", "invalid ELF header"),
    ("pjrt:", "twice", "f32[4]", "there is no file"),
    ("PLUGIN", "eig", "f32[3,3]", "eig calls lapack_sgeev_ffi, a LAPACK kernel of jaxlib that plugins do not have\nhint: ")])
def test_targets_that_cannot_be_built(tmp_path, plugin, target, function, spec, message):
    done = compile_with(tmp_path, target.replace("PLUGIN", f"pjrt:{plugin}"), function, spec)
    assert done.returncode == 1 and message in done.stderr and "Traceback" not in done.stderr


def test_a_changed_plugin_makes_a_build_stale(tmp_path, plugin):
    shutil.copy(plugin, tmp_path / "mine.so")
    c_loader.project(tmp_path, ["pjrt:mine.so"], {"scalar": FUNCTIONS["scalar"]})
    build = [sys.executable, "-m", "aot.cli", "build"]
    assert "1 up to date" in run(*build, cwd=tmp_path).stderr
    assert "1 up to date" in run(*build, "--locked", cwd=tmp_path).stderr
    with (tmp_path / "mine.so").open("ab") as f:
        f.write(b"\0")
    done = run(*build, "--locked", cwd=tmp_path)
    assert done.returncode == 1 and "plugin_mine_so" in done.stderr
    assert "1 built" in run(*build, cwd=tmp_path).stderr
