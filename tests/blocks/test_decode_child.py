"""Probe, decode and extract as the pipeline calls them: JSON in and out, in this process and in a real child."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from PIL import Image

from blocks import decode_child
from blocks.access import LocalConfig, revealed
from blocks.access_local import LocalAccess, file_uri
from blocks.child import run_child
from blocks.signals_writer import SignalsWriter
from tasks.algorithms.keyframes import select_keyframes
from tasks.algorithms.signals import SignalRow
from tasks.records.errors import BudgetExceeded, CorruptMedia, UnsupportedMedia
from tasks.records.media import MediaKind, MediaProbe
from tasks.records.signals import SIGNAL_COLUMNS, SignalsRef
from tasks.records.specs import DecodeSpec, SelectionSpec
from tests.blocks.media_makers import dicom_bytes, image_bytes, number_in, numbered, video_bytes

Json = dict[str, Any]


def request_for(folder: Path, data: bytes, **spec: Any) -> Json:
    """Write a medium under a name that lies, and return the request that every call takes."""
    path = folder / "holiday.txt"
    path.write_bytes(data)
    access = LocalAccess(LocalConfig(root=str(folder)))
    stat = access.stat(file_uri(path))
    return {
        "access": revealed(access.config),
        "stat": stat.model_dump(mode="json"),
        "decode": DecodeSpec(**spec).model_dump(mode="json"),
    }


def quiet(progress: Json) -> None:
    assert set(progress) == {"stage", "done", "total", "unit"}


def decoded(request: Json, folder: Path) -> tuple[SignalsRef, pd.DataFrame]:
    answer = decode_child.decode({**request, "table_path": str(folder / "signals.parquet")}, quiet)
    json.dumps(answer)
    return SignalsRef(uri="file:///signals.parquet", **answer), pd.read_parquet(folder / "signals.parquet")


def test_probe_tells_kind_and_header(tmp_path: Path) -> None:
    answer = decode_child.probe(request_for(tmp_path, video_bytes(10)), quiet)
    probe = MediaProbe.model_validate(answer["probe"])
    assert answer["kind"] == "video"
    assert (probe.width_px, probe.height_px, probe.codec, probe.frame_count_from_header) == (64, 48, "h264", 10)
    answer = decode_child.probe(
        request_for(tmp_path, dicom_bytes(np.zeros((2, 8, 8), np.uint8), FrameTime="40")), quiet
    )
    assert answer["kind"] == "dicom"
    assert answer["probe"]["duration_ns_from_header"] == 80_000_000


def test_decode_writes_one_row_a_frame(tmp_path: Path) -> None:
    signals, table = decoded(request_for(tmp_path, video_bytes(60)), tmp_path)
    assert list(table.columns) == list(SIGNAL_COLUMNS)
    assert {name: str(kind) for name, kind in table.dtypes.items()} == SIGNAL_COLUMNS
    assert table.frame_index.tolist() == list(range(60))
    assert (signals.frames_delivered, signals.frames_declared, signals.frames_corrupt) == (60, 60, 0)
    assert signals.frames_scored == int(table.scored.sum())
    assert signals.duration_ns == 60 * 40_000_000
    assert signals.warnings == ()
    assert "h264" in signals.decoder


def test_progress_ends_at_the_last_frame(tmp_path: Path) -> None:
    seen: list[Json] = []
    request = {**request_for(tmp_path, video_bytes(20)), "table_path": str(tmp_path / "t.parquet")}
    decode_child.decode(request, seen.append)
    assert seen[-1] == {"stage": "decode", "done": 20, "total": 20, "unit": "frames"}


def test_from_bytes_to_chosen_pictures(tmp_path: Path) -> None:
    request = request_for(tmp_path, video_bytes(100, gop=25))
    _, table = decoded(request, tmp_path)
    kept = select_keyframes(table, SelectionSpec(max_keep_fraction=0.2), media_id="m", kind=MediaKind.VIDEO).keyframes
    assert len(kept) > 1
    targets = [keyframe.model_dump(mode="json") for keyframe in kept]
    answer = decode_child.extract({**request, "keyframes": targets, "out_dir": str(tmp_path)}, quiet)
    assert [picture["frame_index"] for picture in answer["pictures"]] == [keyframe.frame_index for keyframe in kept]
    for picture in answer["pictures"]:
        pixels = np.asarray(Image.open(picture["path"]))
        assert number_in(pixels) == picture["frame_index"]
        assert pixels.shape == (picture["height_px"], picture["width_px"], 3)
        assert Path(picture["path"]).name == f"{picture['frame_index']:06d}.webp"


def test_stills_are_written_without_loss_and_within_the_longest_side(tmp_path: Path) -> None:
    picture = np.random.default_rng(0).integers(0, 255, (40, 60, 3), np.uint8)
    request = {**request_for(tmp_path, image_bytes(picture)), "out_dir": str(tmp_path)}
    request["keyframes"] = [{"frame_index": 0, "pts_ns": None}]
    (written,) = decode_child.extract(request, quiet)["pictures"]
    assert np.array_equal(np.asarray(Image.open(written["path"])), picture)
    (small,) = decode_child.extract({**request, "max_side_px": 30}, quiet)["pictures"]
    assert (small["width_px"], small["height_px"]) == (30, 20)


@pytest.mark.parametrize(
    ("data", "cause", "words"),
    [
        (b"", CorruptMedia, r"^is empty \(0 bytes\)$"),
        (b"Patient: Erika Mustermann\n", UnsupportedMedia, "^looks like text"),
    ],
)
def test_refusals_carry_no_name(tmp_path: Path, data: bytes, cause: type[Exception], words: str) -> None:
    request = request_for(tmp_path, data)
    with pytest.raises(cause, match=words) as caught:
        decode_child.probe(request, quiet)
    assert "holiday" not in str(caught.value)
    assert "Mustermann" not in str(caught.value)


def test_limits_of_the_spec_hold(tmp_path: Path) -> None:
    request = {**request_for(tmp_path, video_bytes(30), max_frames=10), "table_path": str(tmp_path / "t.parquet")}
    with pytest.raises(BudgetExceeded, match="more than 10 frames; raise max_frames"):
        decode_child.decode(request, quiet)
    with pytest.raises(BudgetExceeded, match="64 x 48 pixels"):
        decode_child.probe(request_for(tmp_path, video_bytes(3), max_pixels_per_frame=100), quiet)


def test_the_whole_way_in_a_real_child(tmp_path: Path) -> None:
    request = request_for(tmp_path, video_bytes(30))
    found = run_child("blocks.decode_child:probe", request, timeout_s=60)
    assert found["kind"] == "video"
    answer = run_child(
        "blocks.decode_child:decode", {**request, "table_path": str(tmp_path / "t.parquet")}, timeout_s=60
    )
    assert SignalsRef(uri="file:///t", **answer).peak_rss_bytes < 600_000_000
    with pytest.raises(CorruptMedia, match="is empty"):
        run_child("blocks.decode_child:probe", request_for(tmp_path, b""), timeout_s=60)


def test_table_is_written_in_row_groups(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    with SignalsWriter(path, group_rows=100) as table:
        for index in range(250):
            table.append(SignalRow(index, -1, scored=True))
    file = pq.ParquetFile(path)
    assert file.metadata.num_row_groups == 3
    assert file.metadata.num_rows == 250
    with SignalsWriter(path):
        pass
    assert pd.read_parquet(path).empty


def test_numbers_survive_the_makers() -> None:
    assert [number_in(numbered(n)) for n in range(256)] == list(range(256))


def test_pictures_do_not_pile_up_in_memory(tmp_path: Path) -> None:
    from blocks.clip_writer import write_clip
    from tasks.algorithms.clips import ClipScript, ClipSpan, render_clip

    script = ClipScript(width=1280, height=720, spans=(ClipSpan("static", 2.0),), fps=40)
    write_clip(tmp_path / "a.mp4", render_clip(script), fps=script.fps)
    access = LocalAccess(LocalConfig(root=str(tmp_path)))
    stat = access.stat(access.uri_of("a.mp4"))

    def peak_bytes(frames: range) -> int:
        request = {
            "access": access.config.model_dump(mode="json"),
            "stat": stat.model_dump(mode="json"),
            "decode": DecodeSpec().model_dump(mode="json"),
            "keyframes": [{"frame_index": index, "pts_ns": None} for index in frames],
            "out_dir": str(tmp_path),
        }
        found: int = run_child("blocks.decode_child:extract", request, timeout_s=120)["peak_rss_bytes"]
        return found

    assert peak_bytes(range(80)) - peak_bytes(range(2)) < 30_000_000
