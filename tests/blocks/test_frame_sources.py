"""One contract for every kind of source, on media made here."""

import itertools
from collections.abc import Callable

import numpy as np
import pytest

from blocks.frame_source import Limits, open_source
from tasks.algorithms.sniff import HEAD_BYTES, sniff_kind
from tasks.records.errors import BudgetExceeded, MediaChanged, ScopeFlowError
from tasks.records.media import MediaKind
from tasks.records.specs import DecodeSpec
from tests.blocks.media_makers import animation_bytes, dicom_bytes, number_in, tiff_bytes, video_bytes
from tests.blocks.media_opening import GREY, LIMITS, RGB, Trickle, decoded, opened, outcome, target_of

KINDS: dict[str, tuple[Callable[[], bytes], MediaKind]] = {
    "mp4": (lambda: video_bytes(12), MediaKind.VIDEO),
    "mkv": (lambda: video_bytes(12, container="matroska"), MediaKind.VIDEO),
    "mpegts": (lambda: video_bytes(12, container="mpegts"), MediaKind.VIDEO),
    "avi": (lambda: video_bytes(12, container="avi", codec="mpeg4", options={"bf": "0", "q": "2"}), MediaKind.VIDEO),
    "vp9 webm": (lambda: video_bytes(12, container="webm", codec="libvpx-vp9"), MediaKind.VIDEO),
    "10-bit": (lambda: video_bytes(12, pix_fmt="yuv420p10le"), MediaKind.VIDEO),
    "hevc": (lambda: video_bytes(12, codec="libx265", options={"x265-params": "log-level=none"}), MediaKind.VIDEO),
    "rgb video": (lambda: video_bytes(12, container="avi", codec="rawvideo", pix_fmt="bgr24"), MediaKind.VIDEO),
    "dicom native": (lambda: dicom_bytes(GREY), MediaKind.DICOM),
    "dicom rgb": (lambda: dicom_bytes(RGB, photometric="RGB"), MediaKind.DICOM),
    "dicom rle": (lambda: dicom_bytes(GREY, rle=True), MediaKind.DICOM),
    "dicom video": (
        lambda: dicom_bytes(GREY, syntax="1.2.840.10008.1.2.4.102", bitstream=video_bytes(12), fragment_bytes=1001 * 2),
        MediaKind.DICOM_VIDEO,
    ),
    "tiff": (lambda: tiff_bytes(RGB, photometric="rgb"), MediaKind.TIFF),
    "bigtiff": (lambda: tiff_bytes(GREY, bigtiff=True), MediaKind.TIFF),
    "webp": (lambda: animation_bytes(list(RGB)), MediaKind.IMAGE),
    "gif": (lambda: animation_bytes(list(RGB), "GIF"), MediaKind.IMAGE),
}


@pytest.fixture(params=KINDS, scope="module")
def medium(request: pytest.FixtureRequest) -> tuple[bytes, MediaKind]:
    make, kind = KINDS[request.param]
    return make(), kind


def test_kind_is_told_from_bytes(medium: tuple[bytes, MediaKind]) -> None:
    data, kind = medium
    assert sniff_kind(data[:HEAD_BYTES]) is kind


def test_every_frame_is_delivered_in_order(medium: tuple[bytes, MediaKind]) -> None:
    source = opened(medium[0])
    frames = list(source.frames())
    assert [frame.frame_index for frame in frames] == list(range(12))
    assert [number_in(frame.luma) for frame in frames] == list(range(12))
    assert not any(frame.is_corrupt for frame in frames)
    times = [frame.pts_ns for frame in frames]
    assert set(times) == {-1} or all(later > earlier for earlier, later in itertools.pairwise(times))
    assert source.gaps == []
    assert source.warnings == []
    assert source.decoder
    source.close()


def test_luma_is_two_dimensional_bytes(medium: tuple[bytes, MediaKind]) -> None:
    frame = decoded(medium[0])[5]
    assert frame.luma.dtype == np.uint8
    assert frame.luma.shape == (48, 64)


def test_extraction_gives_the_frames_that_were_decoded(medium: tuple[bytes, MediaKind]) -> None:
    frames = decoded(medium[0])
    for wanted in ([0], [11], [3, 4, 9], list(range(12))):
        pictures = dict(opened(medium[0]).extract([target_of(frames[index]) for index in wanted]))
        assert list(pictures) == wanted
        assert [number_in(picture) for picture in pictures.values()] == wanted
        assert all(picture.shape == (48, 64, 3) and picture.dtype == np.uint8 for picture in pictures.values())


def test_probe_decodes_nothing_and_agrees(medium: tuple[bytes, MediaKind]) -> None:
    probe = opened(medium[0], max_frames=1).probe()
    assert (probe.width_px, probe.height_px) == (64, 48)
    assert probe.frame_count_from_header in (None, 12)
    assert not probe.has_audio


def test_frame_limit_stops_and_names_the_setting(medium: tuple[bytes, MediaKind]) -> None:
    with pytest.raises(BudgetExceeded, match="more than 5 frames; raise max_frames"):
        decoded(medium[0], max_frames=5)


def test_pixel_limit_stops_before_decoding(medium: tuple[bytes, MediaKind]) -> None:
    with pytest.raises(BudgetExceeded, match="max_pixels_per_frame"):
        decoded(medium[0], max_pixels_per_frame=1000)


def test_time_limit_stops(medium: tuple[bytes, MediaKind]) -> None:
    with pytest.raises(BudgetExceeded, match="max_seconds"):
        decoded(medium[0], max_seconds=-1.0)


def test_error_of_the_stream_comes_through(medium: tuple[bytes, MediaKind]) -> None:
    data, kind = medium
    for reads in (0, 1, 2):
        stream = Trickle(data, most=300)
        stream.fail_after = reads
        with pytest.raises(MediaChanged, match="changed since the run began"):
            list(open_source(kind, stream, Limits(**LIMITS)).frames())


def test_cut_off_anywhere_ends_in_frames_or_a_clear_error(medium: tuple[bytes, MediaKind]) -> None:
    data = medium[0]
    for share in (0.02, 0.3, 0.6, 0.9):
        found = outcome(data[: int(len(data) * share)])
        if isinstance(found, ScopeFlowError):
            assert found.message[:1].islower()
            assert "Mustermann" not in found.message
        else:
            assert 1 <= len(found) <= 12


def test_limits_come_from_the_spec() -> None:
    limits = Limits.of(DecodeSpec(max_frames=7))
    assert limits.max_frames == 7
