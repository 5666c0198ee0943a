"""The build system: a project's manifest, up-to-date check, workers, and lock file.

    manifest = aot.manifest.load("aot.toml")
    outcome = aot.project.build(manifest, aot.project.Options(jobs=2), print)

`driver` decides what to do, `state` remembers what was done, `pool` and `server` run `tasks` in processes of their
own, `dependencies` tells which files a trace has read.
"""
from aot.project.driver import Options, TaskError, build, clean, explain, named_program

__all__ = ["Options", "TaskError", "build", "clean", "explain", "named_program"]
