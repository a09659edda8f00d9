"""How a benchmark's figures are kept: results/<name>.json, and RESULTS.md made from all of them."""

import json
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).parent / "RESULTS.md"


def write_result(name: str, *, title: str, rows: list[dict[str, Any]], claims: list[dict[str, Any]]) -> bool:
    """Write one benchmark's figures and renew RESULTS.md.

    Args:
        name: file name without suffix.
        title: what was measured, in one line.
        rows: figures, one dictionary a measurement, all with the same keys.
        claims: ``{claim, goal, value, holds}``.

    Returns:
        Whether all claims hold.
    """
    RESULTS.mkdir(exist_ok=True)
    found = {"title": title, "commit": _commit(), "machine": _machine(), "rows": rows, "claims": claims}
    (RESULTS / f"{name}.json").write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    PAGE.write_text(results_page(), encoding="utf-8")
    return all(claim["holds"] for claim in claims)


def results_page() -> str:
    """Return RESULTS.md from all result files."""
    lines = ["# Benchmarks", "", "Made by `make bench` from `results/*.json`; do not edit.", ""]
    for path in sorted(RESULTS.glob("*.json")):
        found = json.loads(path.read_text(encoding="utf-8"))
        lines += [f"## {found['title']}", "", f"Commit {found['commit']}; {found['machine']}.", ""]
        lines += _table(found["claims"]) + [""] + _table(found["rows"]) + [""]
    return "\n".join(lines)


def _table(rows: list[dict[str, Any]]) -> list[str]:
    if not rows:
        return []
    names = list(rows[0])
    body = ["| " + " | ".join(_cell(row[name]) for name in names) + " |" for row in rows]
    return ["| " + " | ".join(names) + " |", "|" + " --- |" * len(names), *body]


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "**no**"
    return f"{value:,.1f}" if isinstance(value, float) else str(value)


def _commit() -> str:
    found = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"


def _machine() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} cores ({platform.machine()}), {memory:.0f} GiB, Python {platform.python_version()}"
