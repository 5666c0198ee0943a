"""`aot build`: a project's artifacts, as far as they are not up to date."""
from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import click

from ._errors import BUG, FAILED, OK, USER_CODE
from ._output import table


@click.command("build")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--manifest", "-m", metavar="FILE", help="The manifest.  [default: aot.toml here or above]")
@click.option("--jobs", "-j", type=click.IntRange(1), help="Workers.  [default: one for each CPU]")
@click.option("--profile", "-p", default="release", show_default=True, help="Profile of the manifest; dev compiles fast.")
@click.option("--target", "-t", "targets", multiple=True, help="Build for this instead of what the manifest says.")
@click.option("--locked", is_flag=True, help="Fail where aot.lock says something else.")
@click.option("--offline", is_flag=True, help="Do not ask remote cache tiers.")
@click.option("--keep-going", "-k", is_flag=True, help="Build what can be built when something fails.")
@click.option("--force", is_flag=True, help="Build everything, up to date or not.")
@click.option("--timeout", type=float, metavar="SECONDS", help="Give up on one function and target after this time.")
@click.option("--depfile", metavar="FILE", help="Write what the artifacts depend on, as rules for make.")
@click.option("--message-format", type=click.Choice(["human", "json"]), default="human", help="json: events on stdout.")
@click.option("--timings", is_flag=True, help="Show where the time went.")
@click.option("--require-cache-hit", is_flag=True, help="Fail instead of compiling anything.")
@click.option("--no-cache", is_flag=True, help="Neither read nor write the cache.")
def command(names: tuple[str, ...], manifest: str | None, depfile: str | None, message_format: str, timings: bool,
            require_cache_hit: bool, no_cache: bool, jobs: int | None, **options: Any) -> int:
    """Build the functions of aot.toml; without NAME all of them.

    An artifact is built again when a source file that its functions read, its manifest entry, its weights or a tool
    has changed.
    """
    from aot import cache, project
    from aot import manifest as manifests
    found = manifests.load(manifest or manifests.find())
    chosen = project.Options(names=names, jobs=jobs or 0, require_hit=require_cache_hit, exporter="aot.exporters.tasks:export",
                             cache=None if no_cache else cache.default_directory(), **options)
    show = _Json() if message_format == "json" else _Human(os.path.relpath(found.root))
    start = time.monotonic()
    with show:
        outcome = _run(project, found, chosen, show)
    if depfile:
        from aot.files import write_text
        from aot.project.state import depfile as rules
        write_text(depfile, rules(outcome["records"], found.root, os.getcwd()))
    show.summary(outcome, time.monotonic() - start)
    if timings:
        _print_timings(show.times)
    return _code(outcome)


def _run(project: Any, found: Any, chosen: Any, show: Any) -> dict:
    try:
        return project.build(found, chosen, show)
    except project.TaskError as e:
        show({"reason": "failed", "function": e.where, "target": None, **e.error})
        return {"ok": False, "fresh": 0, "built": 0, "failed": 1, "skipped": 0, "errors": [e.error], "records": []}


def _code(outcome: dict) -> int:
    kinds = {e["kind"] for e in outcome["errors"]}
    return OK if outcome["ok"] else USER_CODE if "user" in kinds else BUG if "bug" in kinds else FAILED


def _print_timings(times: list[dict]) -> None:
    rows = [["function", "target", "seconds", "of which XLA", ""]]
    for e in sorted(times, key=lambda e: -e["seconds"]):
        xla = "" if e.get("hit") or "compile_seconds" not in e else f"{e['compile_seconds']:.2f}"
        rows.append([e["function"], e["target"] or "", f"{e['seconds']:.2f}", xla, "from the cache" if e.get("hit") else ""])
    click.echo(table(rows), err=True)


class _Json:
    """Events as lines of JSON on stdout."""

    def __init__(self) -> None: self.times: list[dict] = []
    def __enter__(self) -> _Json: return self
    def __exit__(self, *exc: Any) -> None: pass

    def __call__(self, event: dict) -> None:
        if event["reason"] in ("compiled", "lowered"):
            self.times.append(event)
        click.echo(json.dumps(event))

    def summary(self, outcome: dict, seconds: float) -> None:
        counts = {k: outcome[k] for k in ("ok", "fresh", "built", "failed", "skipped")}
        click.echo(json.dumps({"reason": "finished", **counts, "seconds": round(seconds, 3)}))


class _Human:
    """Artifacts on stdout; progress, warnings and errors on stderr: bars on a terminal, lines elsewhere."""

    def __init__(self, root: str):
        self.root, self.times, self.bars, self.total = root, [], {}, 0
        self.progress: Any = None

    def __enter__(self) -> _Human: return self

    def __exit__(self, *exc: Any) -> None:
        if self.progress is not None:
            self.progress.stop()

    def _path(self, path: str) -> str: return os.path.normpath(os.path.join(self.root, path))

    def __call__(self, event: dict) -> None:
        getattr(self, "_" + event["reason"])(event)

    def _fresh(self, e: dict) -> None: pass

    def _stale(self, e: dict) -> None:
        self._line(f"{self._path(e['artifact'])}: {e['why']}")
        self.total += e["tasks"]
        if sys.stderr.isatty() and self.progress is None:
            from rich.console import Console
            from rich.progress import Progress
            self.progress = Progress(console=Console(stderr=True), transient=True)
            self.progress.start()
            self.bars["all"] = self.progress.add_task("all", total=self.total)
        elif self.progress is not None:
            self.progress.update(self.bars["all"], total=self.total)

    def _started(self, e: dict) -> None:
        if self.progress is not None:
            what = f"{e['function']} for {e['target']}" if e["target"] else f"writing {self._path(e['artifact'])}"
            self.bars[e["function"], e["target"]] = self.progress.add_task(what, total=None)

    def _done(self, e: dict) -> None:
        bar = self.bars.pop((e.get("function"), e.get("target")), None)
        if bar is not None:
            self.progress.remove_task(bar)
        if self.progress is not None:
            self.progress.advance(self.bars["all"])

    def _compiled(self, e: dict) -> None:
        self._done(e)
        self.times.append(e)
        what = "from the cache" if e.get("hit") else f"{e['seconds']:.1f} s"
        self._line(f"  {e['function']} for {e['target']}: {what}")
        if e.get("warning"):
            self._line(f"warning: {e['function']} for {e['target']}: {e['warning']}")

    def _lowered(self, e: dict) -> None:
        self._done(e)
        self.times.append(e)

    def _artifact(self, e: dict) -> None:
        self._done({"function": e["functions"][0], "target": None})
        for signature in e["signatures"]:
            line = f"{self._path(e['artifact'])}: {signature}"
            if self.progress is not None and sys.stdout.isatty():
                self._line(line)  # above the bars
            else:
                click.echo(line)

    def _failed(self, e: dict) -> None:
        self._done(e)
        what = f"{e['function']} for {e['target']}" if e["target"] else e["function"]
        user = e["kind"] == "user"
        self._line((e["message"] + "\n" if user else "") + f"error: {what}: "
                   + ("the function raised" if user else e["message"]))
        hint = e.get("hint") or (_log(e["log"]) if "log" in e else None)
        if hint:
            self._line(f"hint: {hint}")

    def _line(self, text: str) -> None:
        if self.progress is not None:
            self.progress.console.print(text, markup=False, highlight=False, soft_wrap=True)
        else:
            click.echo(text, err=True)

    def summary(self, outcome: dict, seconds: float) -> None:
        words = {"built": "built", "failed": "failed", "fresh": "up to date", "skipped": "not tried"}
        parts = [f"{outcome[k]} {word}" for k, word in words.items() if outcome[k]]
        click.echo(f"{', '.join(parts)} in {seconds:.1f} s", err=True)


def _log(path: str) -> str | None:
    """Where the output of a worker is, if it wrote any."""
    try:
        return f"its output is in {os.path.relpath(path)}" if os.path.getsize(path) else None
    except OSError:
        return None
