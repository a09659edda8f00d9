"""What the commands share: options, output, and how errors are told."""

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])

DEFAULT_STORE = "./scopeflow-results"


def json_option(command: Command) -> Command:
    """Give a command ``--json``: data on standard output and nothing else there."""
    return click.option(
        "--json", "as_json", is_flag=True, help="Print data on standard output; text and progress go to standard error."
    )(command)


def selection_options(command: Command) -> Command:
    """Give a command the knobs of keyframe selection."""
    for option in (
        click.option("--max-keyframes", type=int, metavar="N", help="Keep at most N keyframes."),
        click.option("--max-gap", type=float, metavar="S", help="Longest stretch without a keyframe, in seconds."),
        click.option(
            "--tile-ssim", type=float, metavar="X", help="Similarity below which a tile has changed; higher keeps more."
        ),
    ):
        command = option(command)
    return command


def say(text: str) -> None:
    """Tell a person something on standard error."""
    click.echo(text, err=True)


def print_json(value: Any) -> None:
    """Print data on standard output."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def checked(kind: Any, values: dict[str, Any], options: dict[str, str]) -> Any:
    """Build a record from options, leaving out those not given.

    Args:
        kind: a pydantic model.
        values: field values; None means not given.
        options: option names by field name, for messages.

    Raises:
        click.BadParameter: a value is out of range.
    """
    from pydantic import ValidationError

    try:
        return kind(**{name: value for name, value in values.items() if value is not None})
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0]) if first["loc"] else ""
        raise click.BadParameter(
            f"{first['input']!r}: {first['msg'].lower()}", param_hint=f"'{options.get(name, name)}'"
        ) from None


def selection_of(options: dict[str, Any]) -> Any:
    """Build the selection spec from a command's options."""
    from tasks.records.specs import SelectionSpec

    return checked(
        SelectionSpec,
        {
            "ssim_tile_min_threshold": options["tile_ssim"],
            "max_gap_s": options["max_gap"],
            "max_keyframes": options["max_keyframes"],
        },
        {"ssim_tile_min_threshold": "--tile-ssim", "max_gap_s": "--max-gap", "max_keyframes": "--max-keyframes"},
    )


def error_facts(error: BaseException) -> dict[str, Any]:
    """Return cause, message and advice of an error; what ScopeFlow did not raise itself is marked as unexpected.

    The words of an unexpected one are left out, since they may quote the medium; ``--debug`` shows them.
    """
    from tasks.algorithms.wording import explain, plain_text
    from tasks.records.errors import ScopeFlowError

    cause = type(error).__name__
    explanation = explain(cause)
    if isinstance(error, ScopeFlowError):
        return {
            "cause": cause,
            "message": plain_text(error.message),
            "advice": explanation.advice,
            "unexpected": False,
        }
    return {
        "cause": cause,
        "message": f"{explanation.what} ({cause})",
        "advice": explanation.advice,
        "unexpected": True,
    }


@contextlib.contextmanager
def errors_named(medium: str) -> Iterator[None]:
    """Let errors name the medium as the person did; elsewhere they carry a pseudonym, or no name."""
    from blocks.access import label_of
    from blocks.access_open import normalise_uri
    from tasks.records.errors import ScopeFlowError

    try:
        yield
    except ScopeFlowError as error:
        message = error.message
        with contextlib.suppress(ScopeFlowError):
            message = message.removeprefix(label_of(normalise_uri(medium))).removeprefix(":").strip()
        raise type(error)(f"{medium}: {message}") from None


def place_of(uri: str | None) -> str | None:
    """Return a plain path for a ``file://`` URI, and any other URI as it is."""
    if uri is None or not uri.startswith("file://"):
        return uri
    from blocks.access_local import path_of

    return str(path_of(uri))


@contextlib.contextmanager
def only_results_on_stdout() -> Iterator[TextIO]:
    """Send what libraries and child processes print on standard output to standard error; yield the real one."""
    original = sys.stdout
    original.flush()
    try:
        is_descriptor = original.fileno() == 1
    except (OSError, ValueError):
        is_descriptor = False
    with contextlib.ExitStack() as undo:
        undo.callback(setattr, sys, "stdout", original)
        results: TextIO = original
        if is_descriptor:
            kept = os.dup(1)
            undo.callback(os.close, kept)
            undo.callback(os.dup2, kept, 1)
            os.dup2(2, 1)
            results = undo.enter_context(
                os.fdopen(os.dup(kept), "w", encoding=original.encoding, errors=original.errors)
            )
        sys.stdout = sys.stderr
        yield results


def writable_folder(path: Path, *, make: bool = True) -> Path:
    """Return the absolute path of a folder that may be written to.

    Args:
        path: of the folder.
        make: make it if it is not there.

    Raises:
        click.BadParameter: it cannot be made, or not be written to.
    """
    folder = Path(os.path.abspath(path.expanduser()))
    try:
        if make:
            folder.mkdir(parents=True, exist_ok=True)
        there = next(above for above in (folder, *folder.parents) if above.exists())
    except OSError as error:
        raise click.BadParameter(f"the folder {folder} cannot be used: {error.strerror}") from None
    if not there.is_dir():
        raise click.BadParameter(f"the folder {folder} cannot be made: {there} is a file")
    if not os.access(there, os.W_OK | os.X_OK):
        raise click.BadParameter(f"the folder {there} may not be written to; choose another, or change its rights")
    return folder
