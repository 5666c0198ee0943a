"""Options, errors and source positions."""
import enum
import importlib.util
import os
import subprocess
import sys
import textwrap
import threading
import warnings
from types import SimpleNamespace

import numpy as np
import pytest

import aot
import aot.numpy as jnp
from aot import errors, source
from aot.config import OPTIONS, State, config, make_user_context, override

jax = pytest.importorskip("jax")

options = sys.modules["aot.config"]      # `aot.config` itself is the object with the values
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


# ---- options -----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("option", OPTIONS, ids=lambda o: o.name)
def test_defaults_are_those_of_jax(option):
    theirs = jax.config.values.get(f"jax_{option.name}", jax.config.values.get(option.name, "absent"))
    assert (theirs.name.lower() if isinstance(theirs, enum.Enum) else theirs) == config.read(option.name)
    assert option.doc.endswith(".") or option.doc.endswith("'.")


def test_update_and_read():
    try:
        config.update("jax_enable_x64", True)
        assert config.enable_x64 is config.jax_enable_x64 is config.read("enable_x64") is True
        assert config.values["jax_enable_x64"] is True
        assert options.enable_x64.value is True and options.enable_x64.name == "jax_enable_x64"
    finally:
        config.update("enable_x64", False)
    assert config.enable_x64 is False


# (name, value, exception, what the message names)
BAD = [("nonsense", 1, AttributeError, "nonsense"), ("enabel_x64", True, AttributeError, "did you mean 'enable_x64'"),
       ("jax_enable_x64", "maybe", ValueError, "maybe"), ("enable_x64", 1.5, TypeError, "float"),
       ("numpy_rank_promotion", "never", ValueError, "'raise'"), ("num_cpu_devices", "two", TypeError, "int"),
       ("default_matmul_precision", "most", ValueError, "highest"), ("compilation_cache_dir", 3, TypeError, "str")]


@pytest.mark.parametrize("name, value, error, text", BAD)
def test_bad_values(name, value, error, text):
    with pytest.raises(error, match=text):
        config.update(name, value)


def test_context_managers_nest_and_restore():
    with options.enable_x64(True):
        with options.enable_x64(False):
            assert not config.enable_x64
        assert config.enable_x64
        with pytest.raises(RuntimeError), override("enable_x64", False):
            raise RuntimeError
        assert config.enable_x64
    assert not config.enable_x64
    with options.debug_nans():
        assert config.debug_nans
    with options.numpy_rank_promotion("raise"), options.default_matmul_precision("highest"):
        assert (config.numpy_rank_promotion, config.default_matmul_precision) == ("raise", "highest")
    with options.transfer_guard("disallow"):
        assert config.transfer_guard_device_to_host == "disallow"
    assert config.transfer_guard_device_to_host is None
    with pytest.raises(TypeError, match="needs a value"):
        options.numpy_rank_promotion()
    with pytest.raises(TypeError, match="value"):
        bool(options.enable_x64)


def test_context_manager_as_decorator():
    @options.enable_x64(True)
    def f():
        return config.enable_x64
    assert f() and f() and not config.enable_x64


def test_overrides_belong_to_one_thread_and_updates_to_all():
    seen = []

    def look():
        seen.append((config.enable_x64, config.debug_nans, config.trace_key()))
    with options.enable_x64(True):
        config.update("debug_nans", True)
        try:
            t = threading.Thread(target=look)
            t.start()
            t.join()
        finally:
            config.update("debug_nans", False)
        assert config.enable_x64
    assert seen[0][:2] == (False, True)


def test_trace_key_is_cached_and_follows_every_change():
    key = config.trace_key()
    assert config.trace_key() is key and hash(key) == hash(config.trace_key())
    with options.enable_x64(True):
        inner = config.trace_key()
        assert inner != key
        config.update("numpy_rank_promotion", "warn")
        assert config.trace_key() not in (inner, key)
        config.update("numpy_rank_promotion", "allow")
        assert config.trace_key() == inner
    assert config.trace_key() == key
    with options.log_compiles(True):
        assert config.trace_key() == key


def test_user_context_takes_part_in_the_key():
    ctx = make_user_context("a")
    key = config.trace_key()
    assert ctx.value == "a" and isinstance(ctx, State)
    with ctx("b"):
        assert ctx.value == "b" and config.trace_key() != key
    assert config.trace_key() == key


def test_assignment_is_refused():
    with pytest.raises(AttributeError, match="update"):
        config.enable_x64 = True
    with pytest.raises(AttributeError):
        config.enabel_x64
    with pytest.raises(AttributeError):
        options.enabel_x64


@pytest.mark.parametrize("env, expected", [
    ({"AOT_ENABLE_X64": "1", "JAX_ENABLE_X64": "0"}, True), ({"JAX_ENABLE_X64": "true"}, True), ({}, False),
    ({"JAX_ENABLE_X64": "off"}, False)])
def test_environment(env, expected):
    code = "from aot.config import config; print(config.enable_x64)"
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("AOT_", "JAX_"))}
    done = subprocess.run([sys.executable, "-c", code], env={**clean, **env}, cwd=ROOT, capture_output=True, text=True)
    assert str(expected) in done.stdout


@pytest.mark.parametrize("name, value, message", [
    ("AOT_ENABLE_X64", "perhaps", "'perhaps' is neither true nor false"), ("JAX_NUMPY_RANK_PROMOTION", "no", "must be one of"),
    ("JAX_CAPTURED_CONSTANTS_WARN_BYTES", "7k", "invalid literal")])
def test_what_the_environment_cannot_say(name, value, message):
    env = {**os.environ, name: value}
    run = lambda *args: subprocess.run([sys.executable, *args], env=env, cwd=ROOT, capture_output=True, text=True)
    done = run("-c", "import aot; aot.numpy.ones(3)")
    assert done.returncode == 1 and "AotError" in done.stderr and name in done.stderr and message in done.stderr
    done = run("-m", "aot.cli", "targets")
    assert done.returncode == 1 and done.stderr.startswith(f"error: environment variable {name}: ") and message in done.stderr


@pytest.mark.parametrize("argv, name, expected", [
    (["--jax_enable_x64"], "enable_x64", True), (["--jax_enable_x64=false"], "enable_x64", False),
    (["--nojax_mutable_array_checks", "other"], "mutable_array_checks", False),
    (["-jax_numpy_rank_promotion=raise"], "numpy_rank_promotion", "raise"),
    (["--jax_captured_constants_warn_bytes=7"], "captured_constants_warn_bytes", 7),
    (["--verbose", "x"], "enable_x64", False)])
def test_flags(argv, name, expected):
    before = config.read(name)
    try:
        config.parse_flags_with_absl(argv)
        assert config.read(name) == expected
    finally:
        config.update(name, before)


def test_unknown_flags_and_absl():
    with pytest.raises(AttributeError, match="jax_enable_x46"):
        config.parse_flags_with_absl(["--jax_enable_x46"])
    if importlib.util.find_spec("absl") is None:
        with pytest.raises(ImportError, match="absl-py"):
            config.config_with_absl()


# ---- errors ------------------------------------------------------------------------------------------------------

NAMES = [n for n in dir(jax.errors) if not n.startswith("_") and isinstance(getattr(jax.errors, n), type)]


@pytest.mark.parametrize("name", NAMES)
def test_exception_hierarchy(name):
    def bases(cls):
        return [c.__name__ for c in cls.__mro__ if not c.__name__.startswith("_")]
    assert bases(getattr(errors, name)) == bases(getattr(jax.errors, name))


@pytest.mark.parametrize("make", [
    errors.ConcretizationTypeError, errors.TracerBoolConversionError, errors.TracerArrayConversionError,
    errors.TracerIntegerConversionError, errors.NonConcreteBooleanIndexError, errors.leaked])
def test_tracer_errors_explain_themselves(make):
    tracer = SimpleNamespace(aval="f32[3]", origin=lambda: "the argument x of f")
    text = str(make(tracer))
    for part in ("f32[3]", "Why:", "To fix this:", "test_config.py", "make(tracer)", "argument x of f"):
        assert part in text


def test_aot_error_prints_hint_and_place():
    e = errors.AotError("it broke", hint="mend it", source=source.user_frame())
    assert str(e).splitlines()[0] == "it broke" and "hint: mend it" in str(e) and "test_config.py" in str(e)
    assert str(errors.AotError("plain")) == "plain"


# ---- source positions --------------------------------------------------------------------------------------------

def test_user_frame_and_where():
    here = source.user_frame()
    file, line, function = source.location(here)
    assert file == __file__ and function == "test_user_frame_and_where"
    assert source.code_line(here) == "here = source.user_frame()"
    assert source.where(here).endswith(f"tests/test_config.py:{line} (test_user_frame_and_where)")
    assert source.where(None) == "<unknown location>"
    with source.replaying(here):
        assert source.user_frame() is here
    assert source.user_frame() is not here


@pytest.fixture
def package(tmp_path):
    """A module that counts as part of the compiler, with functions that call back into the user's."""
    path = tmp_path / "inner" / "part.py"
    path.parent.mkdir()
    path.write_text(textwrap.dedent("""
        from aot import source

        def frame(): return source.user_frame()
        def call(f): return f()
        def refuse(): raise ValueError("a wrong argument")
        def fail(): return None.fault

        @source.api_boundary
        def api(f): return call(f)
    """))
    source.register_internal(str(path.parent))
    namespace = {}
    exec(compile(path.read_text(), str(path), "exec"), namespace)
    yield SimpleNamespace(**namespace)
    source._internal_roots.pop()
    source._internal.clear()


def frames(exc):
    tb, names = exc.__traceback__, []
    while tb is not None:
        names.append(tb.tb_frame.f_code.co_name)
        tb = tb.tb_next
    return names


def boom():
    raise KeyError("mine")


def test_internal_frames_are_skipped_and_hidden(package):
    assert source.location(package.call(package.frame))[2].startswith("test_internal_frames")
    with pytest.raises(KeyError) as caught:
        package.api(boom)
    assert frames(caught.value) == ["test_internal_frames_are_skipped_and_hidden", "boom"]
    with pytest.raises(KeyError) as caught, override("traceback_filtering", "off"):
        package.api(boom)
    assert "call" in frames(caught.value)
    with pytest.raises(ValueError) as caught:
        package.api(package.refuse)
    assert frames(caught.value) == ["test_internal_frames_are_skipped_and_hidden"]
    with pytest.raises(AttributeError) as caught:       # a fault of the package stays visible
        package.api(package.fail)
    assert frames(caught.value)[-1] == "fail"


def test_hiding_follows_causes(package):
    def chained():
        try:
            package.call(boom)
        except KeyError as e:
            raise RuntimeError("outer") from e
    with pytest.raises(RuntimeError) as caught:
        package.api(chained)
    assert frames(caught.value.__cause__) == ["chained", "boom"]


def test_relative_paths():
    assert source.relative(__file__, ROOT) == "tests/test_config.py"
    assert source.relative("/elsewhere/x.py", ROOT) == "/elsewhere/x.py"
    assert source.relative("<string>") == "<string>"


def test_warnings_point_at_the_user(package):
    def warn():
        warnings.warn("look", stacklevel=source.frames_to_user())
    with pytest.warns(UserWarning) as caught:
        package.call(warn)
    assert caught[0].filename == __file__


# ---- the gate of compiled calls --------------------------------------------------------------------------------------

def test_calls_see_every_change_of_options_and_traces():
    """A call that was dispatched in C++ looks again after an option changed, within contexts, threads and traces."""
    twice = aot.jit(lambda x: x * 2)
    x = np.arange(3, dtype=np.float64)
    for _ in range(3):
        assert twice(x).dtype == np.float32
    with aot.enable_x64(True):
        assert twice(x).dtype == np.float64
        seen = []
        t = threading.Thread(target=lambda: seen.append(twice(x).dtype))
        t.start()
        t.join()
        assert seen == [np.float32]
    assert twice(x).dtype == np.float32
    jaxpr = aot.make_jaxpr(lambda y: y + twice(jnp.ones(3)).sum())(1.0)
    assert "jit" in str(jaxpr) or "pjit" in str(jaxpr)
    aot.config.update("enable_x64", True)
    try:
        assert twice(x).dtype == np.float64 and twice(x).dtype == np.float64
    finally:
        aot.config.update("enable_x64", False)
    assert twice(x).dtype == np.float32
    with pytest.raises(ZeroDivisionError), aot.enable_x64(True):
        raise ZeroDivisionError
    assert aot.config.enable_x64 is False and twice(x).dtype == np.float32


def test_the_gate_opens_when_the_last_one_leaves():
    from aot.config import Gate
    gate = Gate()
    first = gate.ready
    gate.close(), gate.close()
    assert gate.ready is None
    gate.open()
    assert gate.ready is None
    gate.open()
    assert gate.ready is first
    gate.new_epoch()
    assert gate.ready not in (None, first)
    gate.close()
    gate.new_epoch()
    assert gate.ready is None
    gate.open()
    assert gate.ready not in (None, first)


def test_the_first_calls_of_a_process_may_come_from_several_threads(tmp_path):
    """What a process has one of, as its client, is made once."""
    code = """if True:
        import sys, threading
        import aot, aot.numpy as jnp, numpy as np
        sys.setswitchinterval(1e-6)
        start, failed = threading.Barrier(8), []
        def work(i):
            start.wait()
            try:
                x = aot.random.normal(aot.random.key(i), (3,))
                y = aot.jit(lambda x: {"y": jnp.sin(x) + i})(x)["y"]
                assert np.allclose(np.asarray(y), np.sin(np.asarray(x)) + i, rtol=1e-6)
            except Exception as e:
                failed.append(repr(e))
        threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
        [t.start() for t in threads], [t.join() for t in threads]
        assert not failed, failed
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert not done.returncode, done.stderr
