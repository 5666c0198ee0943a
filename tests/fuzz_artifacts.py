"""Mutated artifacts against the Python reader: `python tests/fuzz_artifacts.py --count 200000`.

Every file must be refused with an ArtifactError or read as the original was.  Half of the mutants get a right CRC for their
manifest, so that what checks the manifest is reached; the sha256 of members stays a real check.  Only reading is fuzzed:
nothing that was verified goes to XLA.
"""
from __future__ import annotations

import argparse
import pathlib
import random
import resource
import struct
import time
import zlib
from collections import Counter

import aot_runtime

SLOW = 5.0      # seconds
FILES = sorted((pathlib.Path(__file__).parent / "data/artifacts").glob("*.aot"))
assert FILES, "tests/data/artifacts is empty"
#: values at which integers break
EDGES = [0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 1 << 63, (1 << 64) - 1]
WORDS = [b"null", b"true", b"-1", b"1e999", b"[]", b"{}", b'""', b"18446744073709551616", b'"O"', b"[" * 2000, b'"../x"', b"NaN"]


def manifest_extent(raw: bytes) -> tuple[int, int]:
    """(offset, size) of the manifest's bytes."""
    at = raw.rindex(b"PK\1\2", 0, raw.rindex(b"manifest.json"))
    size, offset = struct.unpack_from("<I", raw, at + 24)[0], struct.unpack_from("<I", raw, at + 42)[0]
    n, m = struct.unpack_from("<2H", raw, offset + 26)
    return offset + 30 + n + m, size


def fix_crc(raw: bytearray, at: int, size: int) -> None:
    """Make the manifest's checksum right again."""
    entry = raw.rindex(b"PK\1\2", 0, raw.rindex(b"manifest.json"))
    struct.pack_into("<I", raw, entry + 16, zlib.crc32(raw[at:at + size]))


def mutate(raw: bytes, rng: random.Random) -> bytes:
    data, (at, size) = bytearray(raw), manifest_extent(raw)
    if rng.random() < 0.5:      # the manifest, of unchanged length
        for _ in range(rng.choice((1, 1, 2, 5))):
            where = at + rng.randrange(size)
            if rng.random() < 0.5:
                word = rng.choice(WORDS)[:at + size - where]
                data[where:where + len(word)] = word
            else:
                data[where] ^= 1 << rng.randrange(8)
        if rng.random() < 0.9:
            fix_crc(data, at, size)
        return bytes(data)
    lo = rng.choice((0, at, len(data) - 1500))      # anything, with weight on the directory
    for _ in range(rng.choice((1, 1, 2, 8))):
        where, kind = rng.randrange(min(max(lo, 0), len(data) - 1), len(data)), rng.random()
        if kind < 0.4:
            data[where] ^= 1 << rng.randrange(8)
        elif kind < 0.7:
            fmt = rng.choice(("<B", "<H", "<I", "<Q"))
            value = rng.choice(EDGES) & ((1 << 8 * struct.calcsize(fmt)) - 1)
            if where + struct.calcsize(fmt) <= len(data):
                struct.pack_into(fmt, data, where, value)
        elif kind < 0.8:
            del data[where:]
        elif kind < 0.9:
            del data[where:where + rng.randrange(1, 100)]
        else:
            data[where:where] = bytes(data[where:where + rng.randrange(1, 100)])
        if len(data) < 2:
            break
    return bytes(data)


def read_everything(raw: bytes) -> dict:
    """All that can be read without XLA."""
    loaded = aot_runtime.load(raw)
    loaded.explain()
    loaded.verify()
    return {"signatures": [loaded.signature(n) for n in loaded], "weights": {k: v.tobytes() for k, v in loaded.weights().items()},
            "golden": [[a.tobytes() for side in loaded.golden(n) or () for a in side] for n in loaded],
            "programs": [bytes(loaded.member(f["program"])) for f in loaded.manifest["functions"].values() if "program" in f]}


def fuzz(count: int, seed: int) -> Counter:
    """Raises AssertionError naming the seed of a mutant that was not handled."""
    outcomes: Counter = Counter()
    originals = {f: (f.read_bytes(), read_everything(f.read_bytes())) for f in FILES}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for i in range(count):
        rng = random.Random(f"{seed}.{i}")
        raw, whole = originals[rng.choice(FILES)]
        mutant, start = mutate(raw, rng), time.perf_counter()
        try:
            found = read_everything(mutant)
            outcomes["read" if found == whole else "read, other manifest"] += 1
            assert found["weights"].keys() == whole["weights"].keys(), f"mutant {seed}.{i}"
        except aot_runtime.ArtifactError as e:
            assert e.where, f"mutant {seed}.{i}: {e}"
            outcomes["refused"] += 1
        except AssertionError:
            raise
        except Exception as e:
            raise AssertionError(f"mutant {seed}.{i}: {type(e).__name__}: {e}") from e
        assert time.perf_counter() - start < SLOW, f"mutant {seed}.{i} is slow"
    grown = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    assert grown < 2 * max(map(len, (raw for raw, _ in originals.values()))) + (16 << 20), f"memory grew by {grown} bytes"
    return outcomes


def flip_bits(count: int, seed: int) -> None:
    """Single bits of the data of members, so many in each file: each flip must be refused."""
    rng = random.Random(seed)
    for path in FILES:
        raw = bytearray(path.read_bytes())
        loaded = aot_runtime.load(bytes(raw))
        views = [loaded.member(m) for m in (*loaded.manifest["members"], "manifest.json")]
        starts = [raw.index(bytes(v)) for v in views]
        for _ in range(count):
            start, view = rng.choice(list(zip(starts, views)))
            at, bit = start + rng.randrange(len(view)), 1 << rng.randrange(8)
            raw[at] ^= bit
            try:
                read_everything(bytes(raw))
            except aot_runtime.ArtifactError as e:
                assert "damaged" in str(e) and "does not match" in str(e), e
            else:
                raise AssertionError(f"{path.name}: the flip of bit {bit} at {at} was not found")
            raw[at] ^= bit


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    start = time.perf_counter()
    flips = max(options.count // 100, 200)
    flip_bits(flips, options.seed)
    print(f"{flips} flipped bits in each of {len(FILES)} files, each refused")
    outcomes = fuzz(options.count, options.seed)
    print(f"{options.count} mutants, seed {options.seed}: {dict(outcomes)}, {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
