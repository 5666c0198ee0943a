"""Where an artifact comes from: the revision of its sources, and the software that made it as a bill of materials."""
from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from typing import Any

from aot import __version__


def revision(folder: str) -> dict[str, Any]:
    """{"revision": commit, "modified": whether files differ from it} of a folder in a git checkout, otherwise {}."""
    def git(*args: str) -> str:
        return subprocess.run(["git", "-C", folder, *args], capture_output=True, text=True, check=True, timeout=20).stdout
    try:
        return {"revision": git("rev-parse", "HEAD").strip(),
                "modified": bool(git("status", "--porcelain", "--untracked-files=no").strip())}
    except (OSError, subprocess.SubprocessError):
        return {}


def sbom(name: str, tools: Mapping[str, str], created: str = "") -> bytes:
    """A CycloneDX 1.6 bill of materials, as JSON with a fixed order of keys.

    tools: name -> version of everything that took part; created: its date, left out for reproducible builds."""
    components = [_component("aotc", __version__), *(_component(k, v) for k, v in sorted(tools.items()))]
    document = {"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
                "metadata": {**({"timestamp": created} if created else {}),
                             "tools": {"components": [{"type": "application", "name": "aotc", "version": __version__}]},
                             "component": {"type": "application", "name": name, "bom-ref": name}},
                "components": components,
                "dependencies": [{"ref": name, "dependsOn": [c["bom-ref"] for c in components]}]}
    return json.dumps(document, indent=1).encode()


def _component(name: str, number: str) -> dict[str, str]:
    kind = "application" if name in ("aotc", "python") else "library"
    purl = f"pkg:generic/python@{number}" if name == "python" else f"pkg:pypi/{name.replace('_', '-')}@{number}"
    return {"type": kind, "name": name, "version": number, "bom-ref": purl, "purl": purl}
