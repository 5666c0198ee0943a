"""What `aot build` does when a function, a worker, the disk or the user ends it."""
from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import aot_runtime
from tests.projects import append, edit, write_project

# ---- failures ------------------------------------------------------------------------------------------------------

BROKEN = """\
import os, signal, time
import aot.numpy as jnp

def fine(x): return x + 1
def raises(x):
    return fine(x) @ jnp.ones((3, 3))
def crashes(x): os.kill(os.getpid(), signal.SIGSEGV)
def eats(x): os.kill(os.getpid(), signal.SIGKILL)
def leaves(x): os._exit(7)
def exits(x): raise SystemExit("goodbye")
def hangs(x):
    print("before", flush=True)
    time.sleep(60)
def wants(x, y): return x
def talks(x): print("a word"); return x.reshape(7)
def memory(x): raise MemoryError
"""

#: function, exit code, what stderr contains
FAILURES = [
    ("raises", 4, ['broken.py", line 6, in raises', "error: raises for cpu: the function raised"]),
    ("crashes", 1, ["error: crashes for cpu: the worker was killed by SIGSEGV"]),
    ("eats", 1, ["the worker was killed by SIGKILL, probably for lack of memory"]),
    ("leaves", 1, ["the worker ended with status 7 before it was done"]),
    ("exits", 4, ["SystemExit: goodbye"]),
    ("hangs", 1, ["took longer than 2 seconds\nhint: its output is in build/.aot/log/hangs-cpu-lower.log"]),
    ("wants", 1, ["error: wants for cpu: wants: nothing given for parameter 'y'\nhint: its signature is wants(x, y)"]),
    ("talks", 4, ["hint: its output is in build/.aot/log/talks-cpu-lower.log"]),
    ("memory", 1, ["ran out of memory"]),
    ("nowhere", 1, ["module 'broken.py' has no 'nowhere'"]),
]


def test_a_failure_fails_its_function_and_nothing_else(tmp_path, monkeypatch, aot):
    names = [f[0] for f in FAILURES] + ["fine"]
    functions = "".join(f"[[function]]\nfunction = 'broken.py:{n}'\nargs = ['f32[2]']\n" for n in names)
    folder = write_project(tmp_path / "p", f"[project]\nname = 'broken'\n{functions}", **{"broken.py": BROKEN})
    monkeypatch.chdir(folder)
    code, out, err = aot("build", "--keep-going", "--timeout", 2, "-j", 3)
    assert code == 4 and out == "build/fine.aot: fine(x) -> f32[2]\n" and f"1 built, {len(FAILURES)} failed" in err
    for name, _, messages in FAILURES:
        for message in messages:
            assert message in err, (name, err)
        assert not os.path.exists(f"build/{name}.aot")
    assert not list(Path("build").glob("*.tmp")) and not list(Path("build/.aot").glob("stage*"))
    for name in ("raises", "crashes", "wants"):
        assert aot("build", name)[0] == next(f[1] for f in FAILURES if f[0] == name)
    assert aot("build", "fine")[2].startswith("1 up to date")


def test_a_failure_keeps_the_old_artifact(copy, aot):
    before = Path("build/square.aot").read_bytes()
    edit("model.py", "return x * x", "return x * y")(copy)
    code, _, err = aot("build", "square")
    assert code == 4 and "NameError: name 'y' is not defined" in err and Path("build/square.aot").read_bytes() == before
    edit("model.py", "return x * y", "return x * x")(copy)
    assert aot("build", "square")[2].startswith("1 up to date")


def test_a_module_that_does_not_import(copy, aot):
    append("model.py", "\nimport nosuchpackage\n")(copy)
    code, _, err = aot("build", "-k")
    assert code == 4 and "ModuleNotFoundError: No module named 'nosuchpackage'" in err and "2 failed" in err
    edit("aot.toml", 'name = "demo"', 'name = "demo"\nmodules = ["layers.py"]')(copy)
    code, _, err = aot("build")
    assert code == 1 and "error: layers.py: it marks no function with @aot.entry\nhint: remove it from `modules`" in err


def test_an_output_folder_that_cannot_be_written(project, aot):
    Path("build").write_text("")
    code, out, err = aot("build")
    assert code == 1 and "error: build: cannot be written: " in err and not out


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a file system")
def test_a_full_disk(built, tmp_path, aot, monkeypatch):
    """Wherever the space runs out: an error, and the artifact of before."""
    monkeypatch.setenv("AOT_CACHE_DIR", str(built.parent / "cache"))
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", tmp_path], capture_output=True).returncode:
        pytest.skip("cannot mount")
    try:
        folder = shutil.copytree(built, tmp_path / "p")
        monkeypatch.chdir(folder)
        before = Path("build/square.aot").read_bytes()
        append("model.py")(folder)
        for room in (60_000, 36_000, 16_000, 4_000):
            free = shutil.disk_usage(".").free
            Path("filler").write_bytes(bytes(free - room))
            code, out, err = aot("build", "square", "--force")
            assert code == 0 or code == 1 and "cannot be written: No space left on device" in err, err
            assert len(Path("build/square.aot").read_bytes()) == len(before)
            aot_runtime.load("build/square.aot").verify()
            assert not list(Path("build").glob("*.tmp"))
            os.remove("filler")
        assert code == 1 and aot("build", "square")[0] == 0
    finally:
        os.chdir("/")
        subprocess.run(["umount", "-l", tmp_path])


def _processes(folder):
    """The processes whose working directory lies in a folder."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat") as f:
                zombie = f.read().rpartition(")")[2].split()[0] == "Z"
            if os.readlink(f"/proc/{pid}/cwd").startswith(str(folder)) and not zombie:
                found.append(int(pid))
        except OSError:
            pass
    return found


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_build_leaves_nothing(how, tmp_path):
    manifest = "[project]\nname = 'b'\n" + "".join(
        f"[[function]]\nname = '{n}'\nfunction = 'broken.py:{n}'\nargs = ['f32[2]']\n" for n in ("fine", "hangs"))
    folder = write_project(tmp_path / "p", manifest, **{"broken.py": BROKEN})
    code = "import sys; from aot.cli import main; sys.exit(main(['build', '-j', '2']))"
    build = subprocess.Popen([sys.executable, "-c", code], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             start_new_session=True)
    log = folder / "build/.aot/log/hangs-cpu-lower.log"
    deadline = time.monotonic() + 30
    while not ((folder / "build/fine.aot").exists() and log.exists() and log.read_text()):
        assert time.monotonic() < deadline and build.poll() is None
        time.sleep(0.05)
    os.killpg(build.pid, how)
    build.communicate(timeout=20)
    assert build.returncode == (130 if how == signal.SIGINT else -9)
    while _processes(folder):
        assert time.monotonic() < deadline + 10, "an orphan"
        time.sleep(0.05)
    aot_runtime.load(folder / "build/fine.aot").verify()
    assert not list(folder.rglob("*.tmp"))
    if how == signal.SIGINT:
        assert not list(folder.glob("build/.aot/stage*"))


def test_what_killed_builds_left_is_removed(copy, aot):
    dead, alive = 2**31 - 1, os.getppid()
    left = ["build/.aot/stage-{}", "build/.aot/state.json.{}.tmp", "build/square.aot.{}.tmp", "aot.lock.{}.tmp"]
    for pid in (dead, alive):
        os.mkdir(left[0].format(pid))
        for name in left[1:]:
            Path(name.format(pid)).touch()
    assert aot("build")[0] == 0
    assert [os.path.exists(name.format(pid)) for pid in (dead, alive) for name in left] == [False] * 4 + [True] * 4


def test_two_builds_at_once(copy):
    shutil.rmtree("build")
    code = "import sys; from aot.cli import main; sys.exit(main(['build', '-j', '1']))"
    running = [subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE) for _ in range(3)]
    for p in running:
        _, err = p.communicate(timeout=60)
        assert p.returncode == 0, err
    for name in ("predict", "square"):
        aot_runtime.load(f"build/{name}.aot").verify()


# ---- the pool ------------------------------------------------------------------------------------------------------

def test_pool(tmp_path):
    from aot.project.pool import Pool
    def task(seconds): return {"do": "sleep", "seconds": seconds, "root": str(tmp_path)}
    with Pool(2) as pool:
        for i, seconds in enumerate([0.4, 0.0, 0.0]):
            pool.submit(task(seconds), log=str(tmp_path / f"{i}"), tag=i)
        assert [pool.next()[0] for _ in range(3)] == [1, 2, 0] and not pool.busy
        pool.submit(task(9), log=str(tmp_path / "late"), tag="late", timeout=0.1)
        assert pool.next()[1] == {"error": {"kind": "timeout", "message": "took longer than 0.1 seconds"}}
        pool.submit({**task(0), "do": "nothing"}, log=str(tmp_path / "x"))
        assert pool.next()[1]["error"]["kind"] == "bug"
        pool.submit(task(9), log=str(tmp_path / "y"))
        assert pool.next(0.1) is None
    assert pool.server is None
