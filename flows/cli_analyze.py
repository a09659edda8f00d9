"""``scopeflow analyze``: one medium after the other, from address to report."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from flows.cli_common import (
    DEFAULT_STORE,
    checked,
    error_facts,
    json_option,
    only_results_on_stdout,
    place_of,
    print_json,
    say,
    selection_of,
    selection_options,
    writable_folder,
)

if TYPE_CHECKING:
    from blocks.access import AccessConfig, StoreAccess
    from blocks.media_store import MediaStore
    from tasks.records.specs import MediaRequest

_WORST_FIRST = ("failed", "partial", "complete")

_EXAMPLES = """\b
Examples:
  scopeflow analyze clip.mp4
  scopeflow analyze clip.mp4 --question "Which instruments are visible?" --open
  scopeflow analyze s3://media/clip.mp4 --store s3://media/scopeflow
  scopeflow analyze a.mp4 b.dcm c.tiff --store results --max-keyframes 32 --json

Finished stages are kept on the store: the same command again takes seconds, and after Ctrl-C or a crash it goes on
where it stopped. S3 is reached with AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and, for a server of your own,
AWS_ENDPOINT_URL."""


@click.command(epilog=_EXAMPLES)
@click.argument("media", nargs=-1, required=True, metavar="MEDIA...")
@click.option(
    "--store",
    default=DEFAULT_STORE,
    show_default=True,
    metavar="WHERE",
    help="Where results are written: a folder, s3://bucket[/prefix], or the name of a saved store block.",
)
@click.option("--question", metavar="TEXT", help="What the model is asked.")
@click.option(
    "--model", "model_folder", metavar="FOLDER", help="A Qwen2-VL checkpoint on this machine instead of the demo model."
)
@click.option("--case-id", metavar="ID", help="A pseudonym; never a patient identifier.")
@selection_options
@click.option(
    "--pool-threshold", type=float, metavar="X", help="Flatness, in grey levels, below which vision tokens are pooled."
)
@click.option("--no-pool", is_flag=True, help="Send every vision token.")
@click.option("--max-output-tokens", type=int, metavar="N", help="Longest answer to one segment, in tokens.")
@click.option(
    "--max-tokens-total", type=int, metavar="N", help="Stop before sending more prompt tokens than this in all."
)
@click.option("--refresh", is_flag=True, help="Run every stage again, whatever is kept from earlier runs.")
@click.option("--open", "open_report", is_flag=True, help="Open each report in the browser.")
@json_option
@click.pass_context
def analyze(context: click.Context, /, media: tuple[str, ...], store: str, as_json: bool, **options: Any) -> None:
    """Answer a question about each of MEDIA and publish a report.

    MEDIA are paths or s3://bucket/key: videos, DICOM, TIFF, PNG, JPEG. One that fails does not stop the others.
    """
    requests = [_request(medium, options) for medium in media]
    place = _place_named(store)
    with only_results_on_stdout() as results:
        readable = sys.stderr if as_json else results
        entries, where = _run_all(context, requests, place, options, readable)
    if as_json:
        outcome = next(name for name in _WORST_FIRST if name in {entry["outcome"] for entry in entries})
        print_json({"outcome": outcome, "store": where, "reports": entries})
    if len(entries) > 1:
        _tell_unfinished(entries)
    if any(entry["outcome"] != "complete" for entry in entries):
        context.exit(1)


def _request(medium: str, options: dict[str, Any]) -> "MediaRequest":
    """Build the request of one medium, or refuse an option that is out of range."""
    from tasks.records.specs import MediaRequest, PoolSpec, PromptSpec

    if options["no_pool"] and options["pool_threshold"] is not None:
        raise click.UsageError("--no-pool and --pool-threshold exclude each other")
    if not medium.strip():
        raise click.UsageError("one of MEDIA is empty; give paths or s3://bucket/key")
    return MediaRequest(
        uri=_text_of(medium),
        case_id=options["case_id"],
        model_folder=str(Path(options["model_folder"]).expanduser().resolve()) if options["model_folder"] else None,
        selection=selection_of(options),
        pooling=checked(
            PoolSpec,
            {"mode": "off" if options["no_pool"] else None, "threshold": options["pool_threshold"]},
            {"threshold": "--pool-threshold"},
        ),
        prompt=checked(
            PromptSpec,
            {
                "prompt": options["question"],
                "max_output_tokens": options["max_output_tokens"],
                "max_tokens_total": options["max_tokens_total"],
            },
            {
                "prompt": "--question",
                "max_output_tokens": "--max-output-tokens",
                "max_tokens_total": "--max-tokens-total",
            },
        ),
    )


def _text_of(medium: str) -> str:
    """Return an address that is valid text; a file name that is not UTF-8 becomes its quoted URI."""
    from blocks.access_open import normalise_uri

    try:
        medium.encode()
    except UnicodeEncodeError:
        return normalise_uri(medium)
    return medium


def _run_all(
    context: click.Context, requests: list["MediaRequest"], place: Path | str, options: dict[str, Any], readable: TextIO
) -> tuple[list[dict[str, Any]], str]:
    """Run every request and return the entries, in order, and the store's address."""
    from blocks.access_open import open_access
    from flows.cli_prefect import prefect_api
    from flows.cli_summary import failed_entry

    refused = [_refusal(request.uri) for request in requests]
    if all(refused):  # nothing to start a server for
        entries = [failed_entry(request, facts) for request, facts in zip(requests, refused, strict=True) if facts]
        for entry in entries:
            _tell_failure(entry)
        return entries, str(place)
    config = _config_of(place)
    if config is not None:
        _check(open_access(config))  # before a server is started
    with prefect_api(debug=context.obj["debug"]):
        block = _opened(place, config)
        access = block.access()
        if config is None:
            _check(access)
        say(f"Results: {place_of(access.root_uri)}")
        entries = []
        for number, (request, facts) in enumerate(zip(requests, refused, strict=True), start=1):
            if len(requests) > 1:
                say(f"\n[{number} of {len(requests)}] {request.uri}")
            if facts is None:
                entries.append(_run_one(context, request, block, options, readable))
            else:
                entries.append(failed_entry(request, facts))
            if entries[-1]["error"]:
                _tell_failure(entries[-1])
    return entries, place_of(access.root_uri) or str(place)


def _refusal(medium: str) -> dict[str, Any] | None:
    """Return why a medium need not be tried: a folder, an address of the wrong kind, or a local file not there."""
    from blocks.access_local import path_of
    from blocks.access_open import normalise_uri
    from tasks.records.errors import MediaNotFound, ScopeFlowError

    try:
        uri = normalise_uri(medium)
        if uri.startswith("file://") and not path_of(uri).exists():
            raise MediaNotFound(f"There is no file {path_of(uri)}")
    except ScopeFlowError as error:
        return error_facts(error)
    except OSError as error:
        return error_facts(MediaNotFound(f"{medium} cannot be looked at: {error.strerror}"))
    return None


def _run_one(
    context: click.Context, request: "MediaRequest", block: "MediaStore", options: dict[str, Any], readable: TextIO
) -> dict[str, Any]:
    from blocks.progress import listen
    from flows.analyze_media import run_analysis
    from flows.cli_progress import progress_view
    from flows.cli_summary import entry_of, failed_entry, summary

    try:
        with progress_view() as view, listen(view.show):
            report = run_analysis(request, block, refresh=options["refresh"])
    except Exception as error:  # one bad medium never stops the rest
        if context.obj["debug"]:
            import traceback

            traceback.print_exception(error)
        return failed_entry(request, error_facts(error))
    click.echo(summary(request.uri, report), file=readable)
    entry = entry_of(request.uri, report)
    if options["open_report"] and entry["report_html"]:
        import webbrowser

        page = entry["report_html"]
        webbrowser.open(page if "://" in page else Path(page).as_uri())
    return entry


def _place_named(store: str) -> Path | str:
    """Return the folder, the S3 address or the block name that ``--store`` means; refuse what is none of them."""
    from blocks.access import LOCAL_STORE_SLUG, S3_STORE_SLUG

    if store.startswith("s3://"):
        if not store.removeprefix("s3://").partition("/")[0]:
            raise click.BadParameter(
                "the bucket is missing; give s3://bucket or s3://bucket/prefix", param_hint="--store"
            )
        return store
    if store.startswith("file://"):
        from blocks.access_local import path_of

        return writable_folder(path_of(store), make=False)
    if "://" in store or not store.strip():
        raise click.BadParameter(f"{store!r} is no store; give a folder or s3://bucket/prefix", param_hint="--store")
    if store.partition("/")[0] in (S3_STORE_SLUG, LOCAL_STORE_SLUG) or (
        os.sep not in store and store[0] not in "~." and not Path(store).is_dir()
    ):
        return store
    return writable_folder(Path(store), make=False)


def _config_of(place: Path | str) -> "AccessConfig | None":
    """Return how a folder or an S3 address is reached; None for a block, which only Prefect knows."""
    from blocks.access import LocalConfig, S3Config
    from blocks.access_open import region_of_environment

    if isinstance(place, Path):
        return LocalConfig(root=str(writable_folder(place)))
    if not place.startswith("s3://"):
        return None
    bucket, _, prefix = place.removeprefix("s3://").partition("/")
    # Credentials stay in the environment: in the block they would lie in Prefect's database.
    return S3Config(
        bucket=bucket,
        prefix=prefix.strip("/"),
        endpoint_url=os.environ.get("AWS_ENDPOINT_URL"),
        region=region_of_environment(),
    )


def _check(access: "StoreAccess") -> None:
    """Ask the store something, so that a wrong bucket or credential is told now and not after decoding."""
    access.exists(access.uri_of("reports/probe"))


def _opened(place: Path | str, config: "AccessConfig | None") -> "MediaStore":
    """Return the block of a place that ``_place_named`` found; needs Prefect."""
    from blocks.access import LocalConfig, S3Config
    from blocks.media_store import LocalMediaStore, MediaStore, S3MediaStore

    if isinstance(config, LocalConfig):
        return LocalMediaStore(root=config.root)
    if isinstance(config, S3Config):
        return S3MediaStore(**config.model_dump(include={"bucket", "prefix", "endpoint_url", "region"}))
    name = str(place)
    if name == "default" or "/" in name:  # can only mean a block
        return MediaStore.named(name)
    found = MediaStore.find(name)
    if found is not None:
        return found
    say(f"No store block is named {name!r}: results go into the folder ./{name}")
    return LocalMediaStore(root=str(writable_folder(Path(name))))


def _tell_failure(entry: dict[str, Any]) -> None:
    say(f"{entry['medium']}: ✗ failed\n  {entry['error']['message']}\n  What to do: {entry['error']['advice']}")


def _tell_unfinished(entries: list[dict[str, Any]]) -> None:
    unfinished = [entry for entry in entries if entry["outcome"] != "complete"]
    if not unfinished:
        say(f"\nAll {len(entries)} media are complete.")
        return
    say(f"\n{len(unfinished)} of {len(entries)} media did not complete:")
    for entry in unfinished:
        failures = entry["report"]["failures"]
        why = "; ".join(f"{failure['stage']}: {failure['message']}" for failure in failures) or "see its report"
        say(f"  {entry['medium']} ({entry['outcome']}): {why}")
