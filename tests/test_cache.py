"""The persistent cache: contents, damage, concurrency, bounds, remote tiers, and its use by jit."""
from __future__ import annotations

import http.server
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from aot import cache
from aot.cache import Cache, key
from aot.errors import AotError

FIELDS = {"kind": "executable", "name": "f", "target": "cpu", "program": "p", "options": {}}


def fields(i): return {**FIELDS, "program": str(i)}


def payload(i): return f"payload {i} ".encode() * 500


@pytest.fixture
def store(tmp_path):
    return Cache(tmp_path / "cache")


def fill(store, n, start=0):
    for i in range(start, start + n):
        assert store.put(key(fields(i)), payload(i), fields(i))


def test_put_and_get(store):
    fill(store, 3)
    assert [store.get(key(fields(i))) for i in range(4)] == [payload(0), payload(1), payload(2), None]
    assert store.counts == {"puts": 3, "hits": 3, "misses": 1}
    stats = store.stats()
    assert stats["entries"] == 3 and stats["bytes"] > 3 * len(payload(0)) and stats["temporary"] == 0
    assert os.path.exists(os.path.join(store.directory, "CACHEDIR.TAG"))


DAMAGES = {
    "truncated": lambda raw: raw[:-40],
    "emptied": lambda raw: b"",
    "first bytes only": lambda raw: raw[:14],
    "a byte more": lambda raw: raw + b"x",
    "other magic": lambda raw: b"b" + raw[1:],
    "zeros": lambda raw: bytes(len(raw)),
    **{f"bit {i}": lambda raw, i=i: raw[:i] + bytes([raw[i] ^ 1 << i % 8]) + raw[i + 1:]
       for i in (3, 12, 20, 200, 1000, -10)},
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_every_damage_is_a_miss(store, damage):
    fill(store, 1)
    path = store.path(key(fields(0)))
    with open(path, "rb") as f:
        raw = f.read()
    broken = DAMAGES[damage](raw)
    with open(path, "wb") as f:
        f.write(broken)
    assert store.get(key(fields(0))) is None and store.counts["damaged"] == 1
    assert [e.path for e in store.verify()] == [path] and not os.path.exists(path)
    fill(store, 1)
    assert store.get(key(fields(0))) == payload(0) and store.verify() == []


def test_any_flipped_bit_is_a_miss(store):
    fill(store, 1)
    k = key(fields(0))
    with open(store.path(k), "rb") as f:
        raw = f.read()
    rng = random.Random(0)
    for _ in range(300):
        at, bit = rng.randrange(len(raw)), rng.randrange(8)
        assert cache.decode(raw[:at] + bytes([raw[at] ^ 1 << bit]) + raw[at + 1:], k) is None
        assert cache.decode(raw[:at], k) is None


def test_an_entry_under_another_key_is_a_miss(store):
    fill(store, 2)
    shutil.copy(store.path(key(fields(0))), store.path(key(fields(1))))
    assert store.get(key(fields(1))) is None


def test_prune_removes_the_least_recently_used(store):
    fill(store, 10)
    size = os.path.getsize(store.path(key(fields(0))))
    for i in range(10):
        os.utime(store.path(key(fields(i))), (i + 1, i + 1))
    store.get(key(fields(0)))
    removed, freed = store.prune(max_size=4 * size + 10)
    assert (removed, freed) == (6, 6 * size)
    assert [i for i in range(10) if store.get(key(fields(i)))] == [0, 7, 8, 9]
    assert store.prune(max_age=3600) == (0, 0)
    os.utime(store.path(key(fields(7))), (1, 1))
    assert store.prune(max_age=3600)[0] == 1
    assert store.clear()[0] == 3 and store.stats()["entries"] == 0


def test_the_bound_holds_while_putting(tmp_path):
    random.seed(0)
    store = Cache(tmp_path, max_size=100_000)
    fill(store, 300)
    assert store.stats()["bytes"] < 125_000


def test_prune_removes_what_killed_writers_left(store):
    fill(store, 1)
    left = os.path.join(store.root, "tmp", "123-abc")
    open(left, "w").close()
    store.prune()
    assert os.path.exists(left)
    os.utime(left, (1, 1))
    store.prune()
    assert not os.path.exists(left)


def test_readonly_writes_nothing(store):
    fill(store, 1)
    os.utime(store.path(key(fields(0))), (1, 1))
    reader = Cache(store.directory, readonly=True)
    assert reader.get(key(fields(0))) == payload(0)
    assert not reader.put(key(fields(1)), b"x", fields(1)) and reader.prune(0) == (0, 0) and reader.clear() == (0, 0)
    assert os.path.getmtime(store.path(key(fields(0)))) == 1 and store.stats()["entries"] == 1


def test_a_directory_that_cannot_be_used_is_a_warning_not_an_error(tmp_path, caplog):
    (tmp_path / "file").write_text("not a directory")
    store = Cache(tmp_path / "file")
    assert store.get(key(fields(0))) is None
    assert not store.put(key(fields(0)), b"x") and not store.put(key(fields(1)), b"x")
    assert store.counts["errors"] >= 2 and len(caplog.records) == 1
    assert store.stats()["entries"] == 0 and store.verify() == [] and store.prune(0) == (0, 0)


def test_errors_are_raised_on_request(tmp_path):
    from aot.config import override
    (tmp_path / "file").write_text("")
    with override("raise_persistent_cache_errors", True), pytest.raises(AotError, match="cannot be written"):
        Cache(tmp_path / "file").put(key({}), b"x")


def test_a_full_disk_loses_nothing(tmp_path, monkeypatch):
    store = Cache(tmp_path)
    fill(store, 2)
    real = Cache._write_file

    def full(self, path, raw):
        real(self, path, raw[:100])
        raise OSError(28, "No space left on device")
    monkeypatch.setattr(Cache, "_write_file", full)
    assert not store.put(key(fields(2)), payload(2), fields(2))
    monkeypatch.undo()
    assert store.get(key(fields(1))) == payload(1) and store.get(key(fields(2))) is None
    assert store.stats()["temporary"] == 0


def test_an_interrupted_put_leaves_nothing(store, monkeypatch):
    def interrupted(*args): raise KeyboardInterrupt
    monkeypatch.setattr(Cache, "_rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fill(store, 1)
    assert store.stats()["entries"] == store.stats()["temporary"] == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a file system")
def test_a_really_full_disk(tmp_path):
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", tmp_path], capture_output=True).returncode:
        pytest.skip("cannot mount")
    try:
        store = Cache(tmp_path / "c")
        written = [i for i in range(100) if store.put(key(fields(i)), payload(i), fields(i))]
        assert 0 < len(written) < 100
        assert [i for i in range(100) if store.get(key(fields(i)))] == written
        assert store.stats()["temporary"] == 0 and store.verify() == []
    finally:
        subprocess.run(["umount", "-l", tmp_path])


WRITER = """
import os, random, sys
from aot.cache import Cache, key
store, seed, n = Cache(sys.argv[1], max_size=int(sys.argv[4])), int(sys.argv[2]), int(sys.argv[3])
random.seed(seed)
for step in range(n):
    i = random.randrange(60)
    f = {"program": str(i)}
    want = f"payload {i} ".encode() * 2000
    got = store.get(key(f))
    assert got is None or got == want, i
    if got is None:
        store.put(key(f), want, f)
    if step % 97 == 96:
        store.prune(400_000)
assert not store.counts["errors"] and not store.counts["damaged"], store.counts
print("ok")
"""


def writers(directory, n, steps, bound=10**9):
    return [subprocess.Popen([sys.executable, "-c", WRITER, str(directory), str(seed), str(steps), str(bound)],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for seed in range(n)]


def test_processes_put_get_and_prune_at_once(tmp_path):
    running = writers(tmp_path, 8, 200, 600_000)
    for p in running:
        out, err = p.communicate(timeout=100)
        assert out == "ok\n", err
    assert Cache(tmp_path).verify() == [] and Cache(tmp_path).stats()["temporary"] == 0


def test_two_hundred_writers_of_one_entry(tmp_path):
    store = Cache(tmp_path)

    def work():
        mine = Cache(tmp_path)
        for i in range(3):
            assert mine.put(key(fields(i)), payload(i), fields(i))
            assert mine.get(key(fields(i))) == payload(i)
            assert not mine.counts["damaged"]
    failed = []
    threads = [threading.Thread(target=lambda: failed.append(1) if _raises(work) else None) for _ in range(200)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not failed and store.verify() == [] and store.stats()["entries"] == 3 and store.stats()["temporary"] == 0


def _raises(f):
    try:
        f()
    except BaseException:
        return True


def test_killed_writers_leave_nothing_broken(tmp_path):
    """100 kills at random points of processes that write all the time."""
    rng, kills = random.Random(1), 0
    while kills < 100:
        child = os.fork()
        if not child:
            store, i = Cache(tmp_path), rng.randrange(1000)
            while True:
                store.put(key(fields(i % 50)), payload(i % 50) * 20, fields(i % 50))
                i += 1
        time.sleep(rng.uniform(0.001, 0.02))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        kills += 1
    store = Cache(tmp_path)
    assert store.verify() == []
    assert all(store.get(key(fields(i))) in (None, payload(i) * 20) for i in range(50))
    store._remove_stale(time.time(), -1)
    assert store.stats()["temporary"] == 0


def test_cost_does_not_grow_with_the_number_of_entries(tmp_path):
    def cost(n):
        store = Cache(tmp_path / str(n), max_size=1 << 30)
        fill(store, n)
        best = 9.0
        for _ in range(5):
            start = time.perf_counter()
            for i in range(n, n + 50):
                store.put(key(fields(i)), payload(0), fields(i))
                store.get(key(fields(i)))
            best = min(best, time.perf_counter() - start)
        return best
    cost(256)
    small, large = cost(10), cost(3000)
    assert large < 2.5 * small, (small, large)     # the aim is 1.5; this machine may be busy


EXPLAINED = [
    ("nothing changed", {}, set()),
    ("program", {"program": "other"}, {"program"}),
    ("options", {"options": {"xla_cpu_enable_fast_math": "True"}}, {"options"}),
    ("two fields", {"target": "cuda:h100", "options": {"a": "b"}}, {"target", "options"}),
]


@pytest.mark.parametrize("name, change, expected", EXPLAINED, ids=[r[0] for r in EXPLAINED])
def test_explain_names_the_fields_that_changed(store, name, change, expected):
    fill(store, 3)
    report = store.explain({**fields(1), **change})
    assert set(report["changed"]) == expected and report["hit"] == (not expected)


SIZES = [("1024", 1024), ("500M", 500 << 20), ("5GiB", 5 << 30), ("1.5 kb", 1536), ("0", 0)]


@pytest.mark.parametrize("text, expected", SIZES)
def test_sizes(text, expected):
    assert cache.parse_size(text) == expected


@pytest.mark.parametrize("text", ["a lot", "1.2.3", ".", "5 EiB", ""])
def test_a_wrong_size_says_so(text):
    with pytest.raises(AotError, match="not a size\nhint: write 500M or 5GiB"):
        cache.parse_size(text)


# ---- remote tiers --------------------------------------------------------------------------------------------------

class Handler(http.server.BaseHTTPRequestHandler):
    files: dict = {}
    status = 200

    def do_GET(self):
        data = self.files.get(self.path)
        self.send_response(self.status if self.status != 200 else 200 if data is not None else 404)
        self.end_headers()
        self.wfile.write(data or b"")

    def do_PUT(self):
        data = self.rfile.read(int(self.headers["Content-Length"]))
        if self.status == 200:
            self.files[self.path] = data
        self.send_response(self.status)
        self.end_headers()

    def log_message(self, *args): pass


@pytest.fixture
def server():
    handler = type("H", (Handler,), {"files": {}})
    httpd = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=httpd.serve_forever, daemon=True).start()
    handler.url = f"http://127.0.0.1:{httpd.server_port}/cache"
    yield handler
    httpd.shutdown()
    httpd.server_close()


def remote(directory, url):
    from aot.remote_cache import open_tier
    return Cache(directory, remotes=[open_tier(url)])


@pytest.mark.parametrize("kind", ["file", "http", "memory"])
def test_remote_tiers(kind, tmp_path, server):
    if kind == "memory":
        pytest.importorskip("fsspec")
    url = {"file": (tmp_path / "shared").as_uri(), "http": server.url, "memory": "memory://bucket/aot"}[kind]
    fill(remote(tmp_path / "one", url), 2)
    other = remote(tmp_path / "two", url)
    assert other.get(key(fields(0))) == payload(0) and other.get(key(fields(9))) is None
    assert other.counts["remote hits"] == 1 and not other.remotes[0].down
    assert Cache(tmp_path / "two").get(key(fields(0))) == payload(0)      # kept locally from now on


def test_an_object_store(tmp_path, monkeypatch, caplog):
    """An S3 server; also one whose bucket is not there."""
    pytest.importorskip("s3fs")
    moto = pytest.importorskip("moto.server")
    server = moto.ThreadedMotoServer(port=0)
    server.start()
    for k, v in {"ACCESS_KEY_ID": "x", "SECRET_ACCESS_KEY": "x", "DEFAULT_REGION": "us-east-1",
                 "ENDPOINT_URL": "http://{}:{}".format(*server.get_host_and_port())}.items():
        monkeypatch.setenv(f"AWS_{k}", v)
    try:
        import s3fs
        s3fs.S3FileSystem().mkdir("bucket")
        fill(remote(tmp_path / "one", "s3://bucket/aot"), 3)
        other = remote(tmp_path / "two", "s3://bucket/aot")
        assert [other.get(key(fields(i))) for i in range(4)] == [payload(0), payload(1), payload(2), None]
        assert other.counts["remote hits"] == 3 and not other.remotes[0].down
        assert not [r for r in caplog.records if "remote cache" in r.getMessage()]
        fill(remote(tmp_path / "three", "s3://nosuchbucket/aot"), 2)
        assert sum("remote cache" in r.getMessage() for r in caplog.records) == 1
    finally:
        server.stop()


@pytest.mark.parametrize("case", ["nobody listens", "500", "403", "damaged", "read only"])
def test_a_remote_tier_that_fails_is_no_failure(case, tmp_path, server, caplog):
    url = "http://127.0.0.1:9/cache" if case == "nobody listens" else server.url
    server.status = {"500": 500, "403": 403}.get(case, 200)
    store = remote(tmp_path / "one", "ro+" + url if case == "read only" else url)
    k = key(fields(0))
    if case == "damaged":
        server.files[f"/cache/{k[:2]}/{k}"] = b"x" * 1000
    assert store.get(k) is None
    fill(store, 2)
    assert Cache(tmp_path / "one").get(k) == payload(0)
    warned = [r for r in caplog.records if "remote cache" in r.getMessage()]
    assert len(warned) == (case in ("nobody listens", "500"))
    if case == "read only":
        assert not server.files


@pytest.mark.parametrize("url, message", [("somewhere", "not a URL"), ("nosuchscheme://x/y", "nosuchscheme")])
def test_remote_urls_that_cannot_work(url, message):
    from aot.remote_cache import open_tier
    with pytest.raises(AotError, match=message):
        open_tier(url)


# ---- jit -----------------------------------------------------------------------------------------------------------

@pytest.fixture
def jit_cache(tmp_path):
    import aot
    from aot.experimental.compilation_cache import compilation_cache as api
    before = aot.config.persistent_cache_min_compile_time_secs
    aot.config.update("persistent_cache_min_compile_time_secs", 0.0)
    api.set_cache_dir(tmp_path)
    yield api
    aot.config.update("compilation_cache_dir", None)
    aot.config.update("persistent_cache_min_compile_time_secs", before)
    api.reset_cache()


def test_jit_stores_and_reuses(jit_cache):
    import aot
    import aot.numpy as jnp
    x = np.linspace(0, 1, 12, dtype=np.float32).reshape(3, 4)

    def make(): return aot.jit(lambda x: jnp.linalg.qr(jnp.sin(x) @ x.T)[1])
    first = np.asarray(make()(x))
    counts = cache.active().counts
    stored = counts["puts"]
    assert jit_cache.is_initialized() and stored
    assert np.array_equal(np.asarray(make()(x)), first) and counts["hits"] >= 1 and counts["puts"] == stored
    lowered = make().lower(x)
    assert np.array_equal(np.asarray(lowered.compile()(x)), first)
    assert lowered.compile().memory_analysis().argument_size_in_bytes == x.nbytes


def test_jit_survives_damaged_entries(jit_cache):
    import aot
    import aot.numpy as jnp
    x = np.arange(5, dtype=np.float32)

    def make(): return aot.jit(lambda x: jnp.cos(x) * 3)
    first = np.asarray(make()(x))
    for entry in list(cache.active().entries()):
        with open(entry.path, "r+b") as f:
            f.seek(entry.size // 2)
            f.write(b"damage")
    assert np.array_equal(np.asarray(make()(x)), first) and cache.active().counts["damaged"] >= 1


def test_jit_stores_no_callbacks(jit_cache):
    import aot
    aot.jit(lambda x: aot.pure_callback(np.sin, aot.ShapeDtypeStruct((3,), np.float32), x))(np.ones(3, np.float32))
    assert cache.active().counts["puts"] == 0


def test_without_a_directory_there_is_no_cache():
    from aot.experimental.compilation_cache import compilation_cache as api
    assert not api.is_initialized() and cache.active() is None
