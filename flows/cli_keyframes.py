"""``scopeflow keyframes``: the keyframes of one medium into a folder, without a server and without a model."""

import json
import re
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from flows.cli_common import (
    errors_named,
    json_option,
    only_results_on_stdout,
    print_json,
    selection_of,
    selection_options,
    writable_folder,
)

if TYPE_CHECKING:
    from tasks.records.keyframes import Keyframe, KeyframeSet

_OWN_PICTURE = re.compile(r"\d{4}_[0-9A-Za-z.-]+\.webp")

_EXAMPLES = """\b
Examples:
  scopeflow keyframes clip.mp4 --out frames
  scopeflow keyframes s3://media/clip.mp4 --out frames --tile-ssim 0.8 --max-keyframes 40
  scopeflow keyframes scan.dcm --out pages --json

Writes one WebP picture a keyframe, named by its time; sheet.webp, all of them on one page; keyframes.json with times,
reasons and scores; and signals.parquet with a row for every frame."""


@click.command(epilog=_EXAMPLES)
@click.argument("medium", metavar="MEDIA")
@click.option("--out", required=True, type=click.Path(file_okay=False, path_type=Path), help="Folder to write to.")
@selection_options
@json_option
@click.pass_context
def keyframes(context: click.Context, /, medium: str, out: Path, as_json: bool, **options: Any) -> None:
    """Choose the keyframes of MEDIA and write them to a folder.

    MEDIA is a path or s3://bucket/key.
    """
    spec = selection_of(options)
    folder = writable_folder(out)
    with only_results_on_stdout() as results, errors_named(medium):
        found = _extracted(medium, folder, spec, sys.stderr if as_json else results)
    if as_json:
        print_json(found)
    if found["outcome"] != "complete":
        context.exit(1)


def _extracted(medium: str, folder: Path, spec: Any, readable: TextIO) -> dict[str, Any]:
    """Probe, decode, select and extract, each reading the same pinned version, and write the folder."""
    import pandas as pd

    from blocks.access import LocalConfig
    from blocks.access_open import access_for, normalise_uri, open_access
    from blocks.progress import listen, report
    from flows.cli_progress import progress_view
    from tasks.algorithms.keyframes import select_keyframes
    from tasks.children import PROBE_TIMEOUT_S, media_ref, run_decode_child
    from tasks.records.media import MediaKind, MediaProbe
    from tasks.records.signals import SignalsRef
    from tasks.records.specs import DecodeSpec

    uri = normalise_uri(medium)
    access = access_for(uri, open_access(LocalConfig(root=str(folder))))
    stat = access.stat(uri)

    def child(stage: str, function: str, **more: Any) -> dict[str, Any]:
        report(stage, 0, None, "")
        return run_decode_child(
            function,
            access,
            stat,
            DecodeSpec(),
            on_progress=lambda line: report(stage, line["done"], line.get("total"), line.get("unit", "")),
            **more,
        )

    with (
        tempfile.TemporaryDirectory(prefix=".scopeflow-", dir=folder) as work,
        progress_view() as view,
        listen(view.show),
    ):
        probed = child("stream-pull", "probe", timeout_s=PROBE_TIMEOUT_S)
        media = media_ref(uri, stat, MediaKind(probed["kind"]))
        table = Path(work) / "signals.parquet"
        decoded = child("decode", "decode", kind=media.kind.value, table_path=str(table))
        signals = SignalsRef(uri="signals.parquet", **decoded)
        report("select-keyframes", 0, None, "")
        chosen = select_keyframes(pd.read_parquet(table), spec, media_id=media.media_id, kind=media.kind)
        targets = [{"frame_index": frame.frame_index, "pts_ns": frame.pts_ns} for frame in chosen.keyframes]
        extracted = child("extract-keyframes", "extract", kind=media.kind.value, keyframes=targets, out_dir=work)
        chosen = _written(folder, table, chosen, {p["frame_index"]: p for p in extracted["pictures"]})
    found = {
        "outcome": "partial" if signals.is_damaged else "complete",
        "folder": str(folder),
        "media_id": media.media_id,
        "kind": media.kind.value,
        "probe": MediaProbe.model_validate(probed["probe"]).model_dump(mode="json"),
        "signals": signals.model_dump(mode="json"),
        "keyframes": chosen.model_dump(mode="json"),
    }
    _replace(folder / "keyframes.json", json.dumps(found, indent=2).encode())
    click.echo(_summary(medium, folder, chosen, signals), file=readable)
    return found


def _written(folder: Path, table: Path, chosen: "KeyframeSet", pictures: dict[int, dict[str, Any]]) -> "KeyframeSet":
    """Put pictures, sheet and table in place of an earlier run's."""
    from tasks.algorithms.contact_sheet import contact_sheet
    from tasks.algorithms.pictures import read_picture, webp_bytes

    _remove_earlier(folder)
    placed = []
    for number, frame in enumerate(chosen.keyframes, start=1):
        picture = pictures[frame.frame_index]
        name = f"{number:04d}_{_file_time(frame)}.webp"
        Path(picture["path"]).replace(folder / name)
        sizes = {"width_px": picture["width_px"], "height_px": picture["height_px"]}
        placed.append(frame.model_copy(update={"image_uri": name, **sizes}))
    thumbnails = ((frame, read_picture((folder / str(frame.image_uri)).read_bytes())) for frame in placed)
    sheet = contact_sheet(thumbnails, total=len(placed))
    _replace(folder / "sheet.webp", webp_bytes(sheet, quality=85))
    table.replace(folder / "signals.parquet")
    return chosen.model_copy(update={"keyframes": tuple(placed), "sheet_uri": "sheet.webp"})


def _file_time(frame: "Keyframe") -> str:
    """Return a keyframe's time, or number, as it stands in a file name."""
    from tasks.algorithms.wording import human_time

    if frame.pts_ns is None:
        return f"frame-{frame.frame_index + 1:06d}"
    return human_time(frame.pts_ns).replace(":", "-")


def _remove_earlier(folder: Path) -> None:
    """Remove the pictures that an earlier run listed in this folder, and nothing else."""
    record = folder / "keyframes.json"
    try:
        listed = [frame["image_uri"] for frame in json.loads(record.read_text())["keyframes"]["keyframes"]]
    except (OSError, ValueError, KeyError, TypeError):
        return
    record.unlink()
    for name in listed:
        if isinstance(name, str) and _OWN_PICTURE.fullmatch(name):
            (folder / name).unlink(missing_ok=True)


def _replace(path: Path, data: bytes) -> None:
    partial = path.with_name(f".{path.name}.partial")
    partial.write_bytes(data)
    partial.replace(path)


def _summary(medium: str, folder: Path, chosen: "KeyframeSet", signals: Any) -> str:
    from tasks.algorithms.wording import REASON_WORDS, counted, frame_label, gap_words

    lines = [f"{medium}: {counted(len(chosen.keyframes), 'keyframe')} of {counted(signals.frames_delivered, 'frame')}"]
    if chosen.capped:
        share = f"{chosen.spec.max_keep_fraction:.0%} of the frames, at most {chosen.spec.max_keyframes}"
        lines.append(f"  The footage asked for more than the limits allow ({share}).")
    lines += [
        f"  {frame_label(frame):<16}{REASON_WORDS[frame.reason]:<26}{frame.image_uri}" for frame in chosen.keyframes
    ]
    lines += [f"  Gap: {gap_words(gap)}" for gap in signals.gaps]
    lines += [f"  Warning: {warning}" for warning in signals.warnings]
    return "\n".join([*lines, f"  Folder: {folder} (sheet.webp, keyframes.json, signals.parquet)"])
