"""``scopeflow doctor``: what is installed, what answers, what is missing, and what to do about it."""

from typing import TYPE_CHECKING

import click

from flows.cli_common import json_option, print_json

if TYPE_CHECKING:
    from flows.cli_checks import Finding

_EXAMPLES = """\b
Examples:
  scopeflow doctor
  scopeflow doctor --deep
  scopeflow doctor --json

Exit code 1 when something that is needed is missing. Secrets are never shown."""


@click.command(epilog=_EXAMPLES)
@click.option("--deep", is_flag=True, help="Also load the embedded model, which takes half a minute.")
@json_option
@click.pass_context
def doctor(context: click.Context, deep: bool, as_json: bool) -> None:
    """Check this machine: packages, codecs, servers, store, model."""
    from flows.cli_checks import all_findings

    findings = all_findings(deep=deep)
    missing = [finding for finding in findings if finding.status == "missing"]
    if as_json:
        print_json(
            {
                "outcome": "failed" if missing else "complete",
                "checks": [finding.__dict__ for finding in findings],
            }
        )
    else:
        _show(findings)
    if missing:
        context.exit(1)


def _show(findings: "list[Finding]") -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    styles = {"ok": "green", "missing": "bold red", "optional": "yellow"}
    console = Console(highlight=False)
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    group = ""
    for finding in _shortened(findings):
        if finding.group != group:
            group = finding.group
            table.add_row(Text(group, style="bold"))
        table.add_row(
            Text(f"  {finding.name}"), Text(finding.status, style=styles[finding.status]), Text(finding.found)
        )
        if finding.advice:
            table.add_row("", "", Text(f"→ {finding.advice}", style="dim"))
    console.print(table)
    missing = sum(finding.status == "missing" for finding in findings)
    console.print("\nEverything needed is there." if not missing else f"\nNeeded and missing: {missing}.")


def _shortened(findings: "list[Finding]") -> "list[Finding]":
    """Put the packages and decoders that are as they should be into one row each."""
    from flows.cli_checks import DECODERS, OK, PACKAGES, Finding

    shown: list[Finding] = []
    for group in dict.fromkeys(finding.group for finding in findings):
        mine = [finding for finding in findings if finding.group == group]
        good = [finding for finding in mine if finding.status == OK and not finding.advice]
        if group == PACKAGES and good:
            shown.append(Finding(group, f"{len(good)} packages", OK, "versions as needed"))
        elif group == DECODERS and good:
            shown.append(Finding(group, "FFmpeg", OK, ", ".join(finding.name for finding in good[1:]) or good[0].found))
        else:
            good = []
        shown += [finding for finding in mine if finding not in good]
    return shown
