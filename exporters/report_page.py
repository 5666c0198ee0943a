"""The report of a verification as one HTML page without scripts or other files."""
from __future__ import annotations

from html import escape
from typing import Any

_STYLE = """body{font:14px system-ui,sans-serif;margin:2em;max-width:70em}table{border-collapse:collapse;margin:.5em 0 1.5em}
td,th{padding:.2em .8em;text-align:left;border-bottom:1px solid #ddd}.right{color:#060}.differs,.failed{color:#a00}
.skipped{color:#666}td.n{text-align:right;font-variant-numeric:tabular-nums}"""


def page(*reports: dict[str, Any]) -> str:
    """HTML of what `verify.verify` returns, for one file or several."""
    title = ", ".join(map(_title, reports)) or "no exported files"
    return (f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(title)}</title><style>{_STYLE}</style>"
            f"{''.join(map(_file, reports))}</html>\n")


def _title(report: dict[str, Any]) -> str:
    outcome = {True: "right", False: "NOT RIGHT", None: report.get("why", "")}[report["ok"]]
    return f"{report['file']}: {outcome}"


def _file(report: dict[str, Any]) -> str:
    head = f"<p>{escape(report['function'])} as {escape(report['format'])}, compared with XLA on the same inputs.</p>"
    cases = "\n".join(_case(c) for c in report["cases"])
    return f"<h1>{escape(_title(report))}</h1>{head}\n{cases}"


def _case(case: dict[str, Any]) -> str:
    head = f"<h2>{escape(case['name'])}: <span class={case['outcome']}>{case['outcome']}</span></h2>"
    why = f"<p>{escape(case['why'])}</p>" if case["why"] else ""
    if not case["outputs"]:
        return head + why
    columns = ["result", "type", "max abs error", "max rel error", "max ULP error"]
    rows = "".join(_row(o) for o in case["outputs"])
    return f"{head}{why}<table><tr>{''.join(f'<th>{c}' for c in columns)}</tr>{rows}</table>"


def _row(o: dict[str, Any]) -> str:
    numbers = "".join(f"<td class=n>{number(o[k])}" for k in ("max_abs_error", "max_rel_error", "max_ulp_error"))
    return f"<tr class={'right' if o['ok'] else 'differs'}><td>{escape(o['name'])}<td>{escape(o['type'])}{numbers}</tr>"


def number(x: float | None) -> str:
    """A figure of the report; a dash for what does not apply."""
    return "-" if x is None else f"{x:.3g}"
