"""Train, compile, verify, load: each step is the command that a user would type."""
import shlex
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
OUT = HERE.parents[1] / "build" / "digits"


def run(command):
    print(f"$ {command}", flush=True)
    start = time.perf_counter()
    words = shlex.split(command.replace("python ", f"{shlex.quote(sys.executable)} ", 1))
    if code := subprocess.run(words, cwd=HERE).returncode:
        sys.exit(f"this step failed with exit code {code}")
    print(f"  ({time.perf_counter() - start:.1f} s)\n", flush=True)


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    out = shlex.quote(str(OUT))
    run(f"python train.py {out}")
    run(f"aot compile model.py:predict --weights {out}/params.npz --arg x='f32[360,64]' -o {out}/digits.aot")
    run(f"aot inspect {out}/digits.aot")
    run(f"aot verify {out}/digits.aot")
    run(f"python evaluate.py {out}/digits.aot {out}/test.npz")


if __name__ == "__main__":
    main()
