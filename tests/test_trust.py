"""Hostile containers and manifests, signatures, bundles, provenance."""
from __future__ import annotations

import json
import struct
import subprocess
import sys
import zipfile

import numpy as np
import pytest

import aot_runtime
from aot.cli import main
from tests import fuzz_artifacts

X = np.arange(4, dtype=np.float32)


# ---- containers ----------------------------------------------------------------------------------------------------

def entries(raw: bytes) -> list[tuple[int, int, str]]:
    """(offset in the central directory, offset of the local header, name) of each member."""
    at = struct.unpack_from("<I", raw, len(raw) - 6)[0]
    found = []
    while raw[at:at + 4] == b"PK\1\2":
        n, m, k = struct.unpack_from("<3H", raw, at + 28)
        found.append((at, struct.unpack_from("<I", raw, at + 42)[0], raw[at + 46:at + 46 + n].decode()))
        at += 46 + n + m + k
    return found


def patched(raw: bytes, at: int, fmt: str, value) -> bytes:
    data = bytearray(raw)
    struct.pack_into(fmt, data, at, value)
    return bytes(data)


def renamed(raw: bytes, old: str, new: str) -> bytes:
    assert len(old) == len(new)
    return raw.replace(old.encode(), new.encode())


def first(raw): return entries(raw)[0]


DAMAGE = [
    ("a parent folder", lambda r: renamed(r, "exec/f/cpu", "../f/a/cpu"), "is not a plain relative path|not what it must be"),
    ("an absolute name", lambda r: renamed(r, "exec/f/cpu", "/xec/f/cpu"), "is not a plain relative path"),
    ("a symbolic link", lambda r: patched(r, first(r)[0] + 38, "<I", 0o120777 << 16), "'program/f.mlirbc' is a symbolic link"),
    ("encrypted", lambda r: patched(r, first(r)[0] + 8, "<H", 1), "'program/f.mlirbc' is encrypted"),
    ("compressed", lambda r: patched(r, first(r)[0] + 10, "<H", 8), "'program/f.mlirbc' is compressed"),
    ("a larger size", lambda r: patched(r, first(r)[0] + 24, "<I", 1 << 30), "'program/f.mlirbc' reaches past"),
    ("a size of 4 GiB", lambda r: patched(r, first(r)[0] + 24, "<I", 0xFFFFFFFF), "'program/f.mlirbc' reaches past|directory"),
    ("overlapping", lambda r: patched(patched(r, first(r)[0] + 24, "<I", 5000), first(r)[0] + 20, "<I", 5000), "overlap"),
    ("another's header", lambda r: patched(r, first(r)[0] + 42, "<I", entries(r)[1][1]), "has no header of its own"),
    ("a header out of the file", lambda r: patched(r, first(r)[0] + 42, "<I", 1 << 31), "has no header of its own"),
    ("bytes after the end", lambda r: r + b"x", "bytes follow its end"),
    ("bytes before the start", lambda r: b"x" * 64 + r, "directory cannot be read|not a zip"),
    ("too many members", lambda r: patched(patched(r, len(r) - 12, "<H", 60000), len(r) - 14, "<H", 60000), "directory"),
    ("several disks", lambda r: patched(r, len(r) - 18, "<H", 1), "directory cannot be read"),
    ("a comment", lambda r: patched(r, len(r) - 2, "<H", 1), "directory cannot be read"),
    ("a directory elsewhere", lambda r: patched(r, len(r) - 6, "<I", 3), "directory cannot be read"),
]


@pytest.mark.parametrize("what, change, message", DAMAGE, ids=[d[0] for d in DAMAGE])
def test_hostile_containers_are_refused(add_file, what, change, message):
    with pytest.raises(aot_runtime.ArtifactError, match=message):
        aot_runtime.load(change(add_file.read_bytes())).verify()


def test_a_member_that_is_there_twice(add_file, tmp_path):
    with zipfile.ZipFile(add_file) as z, zipfile.ZipFile(tmp_path / "t.aot", "w") as w, pytest.warns(UserWarning):
        for i in z.infolist():
            w.writestr(i.filename, z.read(i))
        w.writestr("golden/f", b"other")
    with pytest.raises(aot_runtime.ArtifactError, match="'golden/f' is there twice"):
        aot_runtime.load(tmp_path / "t.aot")


def test_mutants_are_refused_or_read_as_the_original():
    fuzz_artifacts.flip_bits(150, 0)
    assert fuzz_artifacts.fuzz(1500, 0)["refused"] > 1000


# ---- manifests -----------------------------------------------------------------------------------------------------

def deep(n):
    tree = "*"
    for _ in range(n):
        tree = {"tuple": [tree]}
    return tree


f_of = lambda m: m["functions"]["f"]
MANIFESTS = [
    ("functions is a list", lambda m: m.update(functions=[]), "functions"),
    ("no members", lambda m: m.pop("members"), "members"),
    ("a negative size", lambda m: m["members"]["golden/f"].update(size=-1), "golden/f"),
    ("another size", lambda m: m["members"]["golden/f"].update(size=1), r"members\['golden/f'\].size"),
    ("a sha256 that is a number", lambda m: m["members"]["golden/f"].update(sha256=3), "golden/f"),
    ("a missing parameter", lambda m: f_of(m).update(parameters=[0]), r"functions\['f'\].parameters"),
    ("a parameter twice", lambda m: f_of(m).update(parameters=[0, 0]), r"functions\['f'\].parameters"),
    ("a parameter that is true", lambda m: f_of(m).update(parameters=[0, True]), "parameters"),
    ("a tree with more leaves", lambda m: f_of(m).update(out_tree={"tuple": ["*", "*"]}), "outputs"),
    ("a tree that is none", lambda m: f_of(m).update(out_tree=7), "out_tree"),
    ("a tree that is deep", lambda m: f_of(m).update(out_tree=deep(300)), "out_tree"),
    ("a shape that is text", lambda m: f_of(m)["inputs"][0].update(shape="4"), "shape"),
    ("a negative shape", lambda m: f_of(m)["inputs"][0].update(shape=[-4]), "shape"),
    ("a dtype of objects", lambda m: f_of(m)["inputs"][0].update(dtype="O"), "dtype 'O'"),
    ("a dtype of records", lambda m: f_of(m)["inputs"][0].update(dtype="f4,f4"), "dtype 'f4,f4'"),
    ("an unknown dtype", lambda m: f_of(m)["inputs"][0].update(dtype="float1"), "dtype 'float1'"),
    ("a schema that is text", lambda m: m.update(schema="one"), "not an .aot artifact"),
    ("weights elsewhere", lambda m: m.update(external={"file": "../w", "arrays": {}}), "external.file"),
    ("an executable without a platform", lambda m: f_of(m)["executables"][0].pop("platform"), "platform"),
]


@pytest.mark.parametrize("what, change, message", MANIFESTS, ids=[m[0] for m in MANIFESTS])
def test_hostile_manifests_are_refused(add_file, tmp_path, repack, what, change, message):
    with pytest.raises(aot_runtime.ArtifactError, match=message):
        aot_runtime.load(repack(add_file, tmp_path / "h.aot", change))


@pytest.mark.parametrize("text", ["[" * 200_000, '{"format":' * 200_000, "\ud800", "NaN", '{"format": "aot", "schema": 1e999}'])
def test_manifests_that_are_no_manifests(tmp_path, text):
    from aot import artifact
    with zipfile.ZipFile(tmp_path / "m.aot", "w") as z:
        artifact.add_member(z, "manifest.json", [text.encode("utf-8", "surrogatepass")])
    with pytest.raises(aot_runtime.ArtifactError, match="not an .aot artifact"):
        aot_runtime.load(tmp_path / "m.aot")


@pytest.mark.parametrize("change, message", [
    (lambda m: f_of(m).update(program="nowhere"), None),
    (lambda m: f_of(m)["executables"][0].update(member="nowhere"), "member 'nowhere' is missing"),
    (lambda m: m["members"].update(more={"size": 1, "sha256": "x"}), "member 'more' is missing"),
])
def test_members_that_the_manifest_only_claims(add_file, tmp_path, repack, change, message):
    loaded = aot_runtime.load(repack(add_file, tmp_path / "h.aot", change))
    if message is None:
        assert loaded["f"](X, X).tolist() == [0, 2, 4, 6]      # the program is not needed where an executable fits
        return
    with pytest.raises(aot_runtime.ArtifactError, match=message):
        loaded["f"]
        loaded.verify()


@pytest.mark.parametrize("header", [
    b"{}" * 3, b'{"a": 3}', b'{"a": {"dtype": "F32", "shape": [4], "data_offsets": [-16, 0]}}',
    b'{"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 99999]}}', b'{"a": {"dtype": "F32", "shape": [5], "data_offsets": [0, 16]}}',
    b'{"a": {"dtype": "F99", "shape": [4], "data_offsets": [0, 16]}}', b'{"a": {"dtype": "F32", "shape": [-1, 4], "data_offsets": [0, 16]}}x',
    b"[" * 100000, b'{"__metadata__": {"dtype:a": "O"}, "a": {"dtype": "U8", "shape": [2, 8], "data_offsets": [0, 16]}}',
])
def test_hostile_tensors_are_refused(header):
    with pytest.raises(aot_runtime.ArtifactError, match="here: damaged: not in safetensors layout"):
        aot_runtime.tensors(memoryview(struct.pack("<Q", len(header)) + header + bytes(16)), "here")


def test_check_reads_no_member_and_loads_no_native_code(add_file):
    script = ("import sys, aot_runtime, json; found = aot_runtime.check(sys.argv[1]);"
              "assert 'jaxlib._jax' not in sys.modules and 'jaxlib.xla_client' not in sys.modules; print(json.dumps(found))")
    found = json.loads(subprocess.run([sys.executable, "-c", script, add_file], capture_output=True, text=True, check=True).stdout)
    assert found["functions"] == {"f": "f(a, b) -> f32[4]"} and found["fit"] == {"f": [["cpu", None]]} and not found["signed_by"]


# ---- signatures ----------------------------------------------------------------------------------------------------

@pytest.fixture
def keys(tmp_path):
    """Paths of a private key, its public key, and of another public key."""
    from aot import signing
    return str(tmp_path / "k.pem"), signing.new_key(str(tmp_path / "k.pem")), signing.new_key(str(tmp_path / "other.pem"))


def test_signed_artifacts_are_accepted_and_others_refused(add_file, keys):
    from aot import signing
    private, public, other = keys
    with pytest.raises(aot_runtime.ArtifactError, match="it is not signed"):
        aot_runtime.load(add_file, trusted_keys=[public])
    signer = signing.sign(add_file, private)
    for key in (public, signer, open(public).read(), open(public, "rb").read()):
        loaded = aot_runtime.load(add_file, trusted_keys=[other, key])
        assert loaded.signer == signer and loaded["f"](X, X).tolist() == [0, 2, 4, 6]
    assert aot_runtime.check(add_file)["signed_by"] == [signer]
    with pytest.raises(aot_runtime.ArtifactError, match=f"signed by {signer[:16]}..., which is not trusted"):
        aot_runtime.load(add_file, trusted_keys=[other])
    with pytest.raises(aot_runtime.ArtifactError, match="which is not trusted"):
        aot_runtime.load(add_file, trusted_keys=[])
    assert aot_runtime.load(add_file).signer is None


def test_signatures_without_the_package(add_file, keys, monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.serialization", None)
    monkeypatch.setitem(sys.modules, "cryptography.exceptions", None)
    with pytest.raises(aot_runtime.AotError, match="signatures need the package `cryptography`"):
        aot_runtime.load(add_file, trusted_keys=[keys[1]])


def test_several_signatures_and_aligned_members(add_file, keys, tmp_path):
    from aot import signing
    private, public, other = keys
    a, b = signing.sign(add_file, private), signing.sign(add_file, other.removesuffix(".pub"), tmp_path / "both.aot")
    signing.sign(tmp_path / "both.aot", private)        # again: replaces its own
    assert aot_runtime.check(tmp_path / "both.aot")["signed_by"] == [b, a]
    for key in (public, other):
        assert aot_runtime.load(tmp_path / "both.aot", trusted_keys=[key])["f"](X, X).tolist() == [0, 2, 4, 6]
    raw = (tmp_path / "both.aot").read_bytes()
    for _, local, name in entries(raw):
        n, m = struct.unpack_from("<2H", raw, local + 26)
        assert (local + 30 + n + m) % 64 == 0, name


def test_changes_after_signing_are_found(add_file, keys, tmp_path, repack):
    from aot import signing
    private, public, _ = keys
    signing.sign(add_file, private)
    with zipfile.ZipFile(add_file) as z:
        signatures = z.read("signatures.json")

    def change(m): f_of(m)["xla_flags"] = {"xla_cpu_enable_fast_math": True}
    repack(add_file, tmp_path / "changed.aot", change)
    with zipfile.ZipFile(tmp_path / "changed.aot") as z:
        assert z.read("signatures.json") == signatures
    with pytest.raises(aot_runtime.ArtifactError, match="the file was changed after it was signed"):
        aot_runtime.load(tmp_path / "changed.aot", trusted_keys=[public])
    raw = bytearray(add_file.read_bytes())
    at = raw.index(b"ML\xefR")                          # the program's magic bytes
    raw[at + 8] ^= 1
    with pytest.raises(aot_runtime.ArtifactError, match="program/f.mlirbc does not match its sha256"):
        aot_runtime.load(bytes(raw), trusted_keys=[public]).verify()


@pytest.mark.parametrize("text", ["{}", '{"signatures": [{"key": "zz", "signature": ""}]}', "[1", '{"signatures": [3]}'])
def test_damaged_signatures(add_file, keys, tmp_path, text):
    with zipfile.ZipFile(add_file, "a") as z:
        z.writestr("signatures.json", text)
    with pytest.raises(aot_runtime.ArtifactError, match="'signatures.json' is not what it must be"):
        aot_runtime.load(add_file, trusted_keys=[keys[1]])


@pytest.mark.parametrize("key, message", [("nowhere.pem", "cannot be read"), ("zz" * 32, "not a public key"), (b"text", "cannot be read")])
def test_keys_that_are_none(add_file, key, message):
    with pytest.raises(aot_runtime.AotError, match=message):
        aot_runtime.load(add_file, trusted_keys=[key])


def test_the_commands(add_file, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["sign", "--new-key", "k.pem"]) == 0 and (tmp_path / "k.pem").stat().st_mode & 0o777 == 0o600
    assert main(["sign", "--new-key", "k.pem"]) == 1 and "exists already" in capsys.readouterr().err
    assert main(["verify", str(add_file), "--key", "k.pem.pub"]) == 1 and "it is not signed" in capsys.readouterr().err
    assert main(["sign", str(add_file), "--key", "k.pem", "-o", "s.aot"]) == 0
    assert main(["verify", "s.aot", "--key", "k.pem.pub"]) == 0 and "signed by" in capsys.readouterr().out
    assert main(["sign", str(add_file), "--key", "k.pem.pub"]) == 1 and "not a private key" in capsys.readouterr().err
    assert main(["sign", "nowhere.aot", "--key", "k.pem"]) == 1 and main(["sign", str(add_file)]) == 2
    assert main(["sign", str(add_file), "--key", "none.pem"]) == 1


# ---- bundles and provenance ----------------------------------------------------------------------------------------

def test_a_bundle_runs_where_aot_is_not(add_file, tmp_path, capsys):
    assert main(["bundle", str(add_file), "-o", str(tmp_path / "out")]) == 0
    assert {p.name for p in (tmp_path / "out").iterdir()} == {"add.aot", "aot_runtime.py", "main.py", "requirements.txt",
                                                              "Dockerfile", ".dockerignore"}
    requirements = (tmp_path / "out" / "requirements.txt").read_text()
    assert f"jaxlib=={aot_runtime.host_info()['jaxlib']}\n" in requirements
    refuse = "import sys; sys.modules['aot'] = None; sys.modules['jax'] = None; import runpy; runpy.run_path('main.py')"
    done = subprocess.run([sys.executable, "-c", "import sys; sys.path.insert(0, '.'); " + refuse], cwd=tmp_path / "out",
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "cpu: fits this host: used" in done.stdout and "f f32[4]" in done.stdout
    assert main(["bundle", str(add_file), "-o", str(tmp_path / "out")]) == 1 and "exists already" in capsys.readouterr().err


def test_a_damaged_artifact_is_not_bundled(add_file, tmp_path):
    raw = bytearray(add_file.read_bytes())
    raw[raw.index(b"ML\xefR") + 8] ^= 1
    add_file.write_bytes(raw)
    assert main(["bundle", str(add_file), "-o", str(tmp_path / "out")]) == 1
    assert not (tmp_path / "out").exists() and not list(tmp_path.glob(".bundle-*"))


def test_the_manifest_says_what_it_was_made_from(tmp_path, monkeypatch):
    from hashlib import sha256
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.py").write_text("def f(x):\n    return x + 1\n")
    def git(*args): subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *args], check=True, capture_output=True)
    git("init", "-q")
    git("add", "m.py")
    git("commit", "-qm", "first")
    assert main(["compile", "m.py:f", "--arg", "f32[3]", "-o", "m.aot"]) == 0
    manifest = aot_runtime.load("m.aot").manifest
    assert len(manifest["provenance"]["revision"]) == 40 and manifest["provenance"]["modified"] is False
    source = manifest["functions"]["f"]["source"]
    assert source == {"function": "m.py:f", "transforms": [], "files": {"m.py": sha256(open("m.py", "rb").read()).hexdigest()}}
    (tmp_path / "m.py").write_text("def f(x):\n    return x + 2\n")
    assert main(["compile", "m.py:f", "--arg", "f32[3]", "-o", "m.aot"]) == 0
    assert aot_runtime.load("m.aot").manifest["provenance"]["modified"] is True


def test_the_bill_of_materials(add_file):
    loaded = aot_runtime.load(add_file)
    bill = json.loads(bytes(loaded.member("sbom.json")))
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    found = {c["name"]: c["version"] for c in bill["components"]}
    assert found.items() >= loaded.manifest["toolchain"].items() and found["aotc"] == "0.1.0"
    assert {c["purl"] for c in bill["components"]} >= {f"pkg:pypi/jaxlib@{found['jaxlib']}", f"pkg:pypi/numpy@{np.__version__}"}
