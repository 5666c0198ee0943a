"""Runs tests/eight in a process of its own with eight CPU devices, which must be asked for before the first array."""
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def test_eight_devices():
    env = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=8", "JAX_PLATFORMS": "cpu"}
    env.pop("PYTEST_XDIST_WORKER", None)
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "--import-mode=importlib", "-p", "no:cacheprovider",
                           "-o", "norecursedirs=", str(HERE / "eight")], env=env, capture_output=True, text=True,
                          cwd=HERE.parent, timeout=900)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
