"""Every real file of the shared media: the frames it must give, or the error it must end in."""

import csv
import hashlib
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from blocks.frame_source import DecodedFrame, FrameSource, FrameTarget, Limits, open_source
from tasks.algorithms.sniff import HEAD_BYTES, sniff_kind
from tasks.records.errors import CorruptMedia, ScopeFlowError, UnsupportedMedia
from tasks.records.media import MediaKind
from tasks.records.specs import DecodeSpec
from tests.real_parts import require

MEDIA = Path(__file__).resolve().parents[3] / "shared" / "media"
MANIFEST = MEDIA / "manifest.csv"
ROWS = list(csv.DictReader(MANIFEST.read_text(encoding="utf-8").splitlines())) if MANIFEST.is_file() else []

# The manifest counts the first video stream; the best one of this file has more and larger frames.
BEST_STREAM_FRAMES = {"video/nasa_13013.mp4": 390}
WRONG_HEADER = "video/frag_wrong_duration_3900s.mp4"


@pytest.fixture(params=ROWS or [None], ids=[row["file"] for row in ROWS] or ["absent"])
def row(request: pytest.FixtureRequest) -> dict[str, str]:
    require(bool(ROWS), "the shared media are not here (../shared/media/manifest.csv beside the repository)")
    found: dict[str, str] = request.param
    return found


def opened(name: str) -> FrameSource:
    data = (MEDIA / name).read_bytes()
    return open_source(sniff_kind(data[:HEAD_BYTES], len(data)), io.BytesIO(data), Limits.of(DecodeSpec()))


def has_frames(row: dict[str, str]) -> bool:
    return row["expected_decodes"] in ("yes", "via PyAV only") and not row["file"].startswith("audio/")


def test_file_is_the_one_of_the_manifest(row: dict[str, str]) -> None:
    assert hashlib.sha256((MEDIA / row["file"]).read_bytes()).hexdigest() == row["sha256"]


def test_frames_or_a_clear_error(row: dict[str, str]) -> None:
    if not has_frames(row):
        with pytest.raises(ScopeFlowError) as caught:
            list(opened(row["file"]).frames())
        assert isinstance(caught.value, CorruptMedia | UnsupportedMedia)
        assert str(MEDIA) not in caught.value.message
        assert "Traceback" not in caught.value.message
        return
    source = opened(row["file"])
    frames = list(source.frames())
    assert len(frames) == BEST_STREAM_FRAMES.get(row["file"], int(row["frames"]))
    assert not any(frame.is_corrupt for frame in frames)
    assert source.gaps == []
    assert bool(source.warnings) == (row["file"] == WRONG_HEADER)
    assert_times(row, frames)
    assert_extracted(row["file"], source.probe(), [frames[0], frames[len(frames) // 2], frames[-1]])
    source.close()


def assert_times(row: dict[str, str], frames: list[DecodedFrame]) -> None:
    if row["first_pts"]:
        assert frames[0].pts_ns == pytest.approx(float(row["first_pts"]) * 1e9, abs=1e6)
    if row["duration_s"] and row["file"] != WRONG_HEADER and len(frames) > 1:
        shown_s = (frames[-1].pts_ns - frames[0].pts_ns) / 1e9 * len(frames) / (len(frames) - 1)
        assert shown_s == pytest.approx(float(row["duration_s"]), rel=0.05)
    if len(frames) == 1 and row["file"].startswith(("dicom", "tiff")):
        assert frames[0].pts_ns == -1


def assert_extracted(name: str, probe: Any, wanted: list[DecodedFrame]) -> None:
    unique = {frame.frame_index: frame for frame in wanted}
    targets = [
        FrameTarget(index, frame.pts_ns if frame.pts_ns != -1 else None) for index, frame in sorted(unique.items())
    ]
    pictures = dict(opened(name).extract(targets))
    assert list(pictures) == sorted(unique)
    for index, picture in pictures.items():
        assert picture.dtype == np.uint8
        assert picture.shape[2] == 3
        luma = unique[index].luma.astype(float)
        grey = picture.astype(float) @ (0.299, 0.587, 0.114)
        if grey.shape == luma.shape and min(luma.shape) > 8 and luma.std() > 1:
            assert np.corrcoef(grey.ravel(), luma.ravel())[0, 1] > 0.94  # BT.709 colour bars differ most


@pytest.mark.parametrize(
    ("name", "cause", "words"),
    [
        ("derived/zero_length.mp4", CorruptMedia, r"is empty \(0 bytes\)"),
        ("derived/bulkwater_cut_60pct_moov_missing.mov", CorruptMedia, r"its index \(moov\) is missing"),
        ("video/audio_only_frag.mp4", UnsupportedMedia, "has an audio track but no picture"),
        ("video/subtitles_only.mp4", UnsupportedMedia, "only a track of type subtitle"),
        ("video/init_only_zero_frames.mp4", CorruptMedia, r"no frame could be decoded .its header promised 3,900.0 s"),
        ("dicom/pydicom__MR_truncated.dcm", CorruptMedia, "8,130 bytes are there, 8,192 make a frame"),
        ("dicom/pydicom__test-SR.dcm", UnsupportedMedia, "without pixel data .Comprehensive SR"),
        ("dicom/pydicom__no_meta.dcm", CorruptMedia, "looks like DICOM"),
        ("dicom/pydicom__meta_missing_tsyntax.dcm", CorruptMedia, "names no transfer syntax"),
        ("dicom/pydicom__badVR.dcm", CorruptMedia, "NumberOfFrames is not a number"),
        ("dicom/pydicom-data__liver_deflate.dcm", UnsupportedMedia, "compression that isn't supported"),
        ("audio/jfk.flac", UnsupportedMedia, "is audio only"),
    ],
)
def test_the_cause_is_named(name: str, cause: type[ScopeFlowError], words: str) -> None:
    require(bool(ROWS), "the shared media are not here (../shared/media/manifest.csv beside the repository)")
    with pytest.raises(cause, match=words):
        list(opened(name).frames())


def test_known_colours() -> None:
    require(bool(ROWS), "the shared media are not here (../shared/media/manifest.csv beside the repository)")
    (_, bars), *_ = opened("dicom/pydicom-data__SC_rgb_16bit_2frame.dcm").extract([FrameTarget(0)])
    assert bars[5, 50].tolist() == [255, 0, 0]
    (_, full), *_ = opened("video/bt709_full_range.mp4").extract([FrameTarget(3, 100_000_000)])
    red, yellow = full[600, 20].astype(int), full[600, 600].astype(int)
    assert red[0] > 230
    assert red[1:].max() < 40
    assert yellow[:2].min() > 200
    assert yellow[2] < 50


def test_video_in_dicom_gives_the_pictures_of_the_video() -> None:
    require(bool(ROWS), "the shared media are not here (../shared/media/manifest.csv beside the repository)")
    wrapped = opened("derived/videodicom_h264_102_single.dcm")
    target = FrameTarget(20, 800_000_000)
    (_, inside), *_ = wrapped.extract([target])
    (_, plain), *_ = opened("video/lap_chole_endo.mp4").extract([target])
    assert np.array_equal(inside, plain)
    assert sniff_kind((MEDIA / "derived/videodicom_hevc_107.dcm").read_bytes()) is MediaKind.DICOM_VIDEO
