"""`aot cache`: the cache of compiled programs and finished builds."""
from __future__ import annotations

import time
from typing import Any

import click

from ._function import function_options, program
from ._output import print_json, size


@click.group("cache")
def command() -> None:
    """Look at and look after the cache of compiled programs and finished builds.

    \b
    AOT_CACHE_DIR       its directory
    AOT_CACHE_MAX_SIZE  its bound, 5GiB if not set
    AOT_CACHE_READONLY  1: never write
    AOT_CACHE_REMOTE    URLs of remote tiers, separated by blanks (file, http, https; others with aotc[remote])
    """


def _cache() -> Any:
    from aot import cache
    return cache.from_environment(offline=True)


def _removed(found: tuple[int, int]) -> None:
    click.echo(f"removed {found[0]} entries, {size(found[1])}", err=True)


@command.command("dir")
def directory() -> None:
    """Print the directory."""
    click.echo(_cache().directory)


@command.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def stats(as_json: bool) -> None:
    """Print how much the cache holds."""
    found = _cache().stats()
    if as_json:
        print_json(found)
        return
    bound = "no bound" if found["max_bytes"] is None else f"bound {size(found['max_bytes'])}"
    click.echo(f"{found['directory']}: {found['entries']} entries, {size(found['bytes'])}, {bound}")
    if found["oldest"]:
        click.echo(f"used between {_when(found['oldest'])} and {_when(found['newest'])}")


def _when(t: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(t))


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_(as_json: bool) -> None:
    """List the entries, the most recently used first."""
    store = _cache()
    rows = []
    for e in sorted(store.entries(), key=lambda e: -e.used):
        fields = (store.header(e) or {}).get("fields", {})
        rows.append({"key": e.key, "name": fields.get("name", "?"), "target": fields.get("target", "?"), "size": e.size,
                     "used": e.used})
    if as_json:
        print_json(rows)
    else:
        for r in rows:
            click.echo(f"{r['key'][:12]}  {_when(r['used'])}  {size(r['size']):>10}  {r['target']}  {r['name']}")


@command.command()
@function_options
@click.option("--target", "-t", default="cpu", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def explain(target: str, as_json: bool, **options: Any) -> None:
    """Tell whether FUNCTION with these arguments is in the cache, and if not, what is different in the nearest entry.

    FUNCTION may also be the name of a function in aot.toml.
    """
    from aot import project
    made = project.named_program(options["function"]) if ":" not in options["function"] else program(**options)
    report = project.explain(made, target, _cache())
    if as_json:
        print_json(report)
    elif report["hit"]:
        click.echo(f"hit: {report['key']}")
    else:
        click.echo(f"miss: {report['key']}")
        click.echo(f"nearest entry: {report['nearest']}" if report["nearest"] else "the cache holds nothing like it")
        for field, (stored, wanted) in report["changed"].items():
            click.echo(f"  {field}: {_short(stored)} -> {_short(wanted)}")


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) < 60 else text[:57] + "..."


@command.command()
@click.option("--keep", is_flag=True, help="Only report damaged entries.")
def verify(keep: bool) -> int:
    """Check every entry's checksum and remove the damaged ones.  Exits with 1 when there are any."""
    damaged = _cache().verify(delete=not keep)
    for e in damaged:
        click.echo(e.path)
    click.echo(f"{len(damaged)} damaged entries" + ("" if keep or not damaged else ", removed"), err=True)
    return 1 if damaged else 0


@command.command()
@click.option("--max-size", metavar="SIZE", help="Keep this much, for example 500M.  [default: the bound]")
@click.option("--max-age", type=float, metavar="DAYS", help="Remove what was not used for so long.")
def prune(max_size: str | None, max_age: float | None) -> None:
    """Remove the least recently used entries."""
    from aot import cache
    store = _cache()
    bound = cache.parse_size(max_size) if max_size else store.max_size
    _removed(store.prune(bound, max_age * 86400 if max_age is not None else None))


@command.command()
def clear() -> None:
    """Remove every entry."""
    _removed(_cache().clear())
