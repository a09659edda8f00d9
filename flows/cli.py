"""The command line: ``scopeflow analyze``, ``keyframes``, ``doctor``, ``serve``.

Prefect takes five seconds of CPU to import, torch and OpenCV more: every command imports what it needs when it runs, so
that ``scopeflow --help`` answers at once.
"""

import errno
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from flows.cli_analyze import analyze
from flows.cli_common import error_facts, print_json, say
from flows.cli_doctor import doctor
from flows.cli_keyframes import keyframes
from flows.cli_serve import serve

EXIT_FAILED, EXIT_USAGE, EXIT_STOPPED = 1, 2, 130

_EXAMPLES = """\b
Examples:
  scopeflow analyze clip.mp4
  scopeflow analyze s3://media/2026/clip.mp4 --store s3://media/scopeflow --case-id CASE-7
  scopeflow analyze *.mp4 --question "When does an instrument touch tissue?" --json > answers.json
  scopeflow keyframes clip.mp4 --out frames
  scopeflow serve s3 media
  scopeflow doctor

Exit codes: 0 complete, 1 failed or partial, 2 wrong usage, 130 stopped with Ctrl-C.

Research software. Not for clinical use."""


class _Main(click.Group):
    """A group that ends every failure in a plain line: what, why, what to do. ``--debug`` shows the traceback."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        given = list(sys.argv[1:] if args is None else args)
        if not standalone_mode:
            return super().main(given, prog_name, complete_var, standalone_mode=False, **extra)
        try:
            code = super().main(given, prog_name or "scopeflow", complete_var, standalone_mode=False, **extra)
        except (click.Abort, KeyboardInterrupt):
            say("Stopped. Finished stages are kept; run the same command to go on.")
            code = EXIT_STOPPED
        except click.ClickException as error:
            error.show()
            code = error.exit_code
        except Exception as error:
            code = _tell(error, as_json="--json" in given, debug="--debug" in given)
        _leave(code if isinstance(code, int) else 0)


def _tell(error: Exception, *, as_json: bool, debug: bool) -> int:
    if isinstance(error, OSError) and error.errno == errno.EPIPE:  # the reader of our output has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED
    if debug:
        traceback.print_exception(error)
    facts = error_facts(error)
    if as_json:
        print_json({"outcome": "failed", "error": facts})
    say(f"{facts['message']}\nWhat to do: {facts['advice']}")
    if not debug and facts["unexpected"]:
        say("`scopeflow --debug …` shows what it says and where it happened.")
    return EXIT_FAILED


def _leave(code: int) -> NoReturn:
    sys.exit(code)


def _show_version(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if value and not context.resilient_parsing:
        from importlib.metadata import version

        click.echo(f"scopeflow {version('scopeflow')}")
        context.exit()


@click.group(cls=_Main, epilog=_EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version, help="Show the version."
)
@click.option("--debug", is_flag=True, hidden=True, help="Show tracebacks and Prefect's own log lines.")
@click.pass_context
def main(context: click.Context, debug: bool) -> None:
    """Very large medical media, from a file to a vision-language model's answer, in bounded memory."""
    context.obj = {"debug": debug}


for _command in (analyze, keyframes, doctor, serve):
    main.add_command(_command)

if __name__ == "__main__":
    main()
