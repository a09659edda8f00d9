"""What the video source must get right: times, pixels, exact seeking, damage."""

import io
import tempfile
from fractions import Fraction
from typing import Any

import av
import numpy as np
import pytest

from blocks.frame_source import FrameTarget, Limits, open_source
from blocks.frame_sources.video import VideoSource
from tasks.records.errors import BudgetExceeded, CorruptMedia, UnsupportedMedia
from tasks.records.media import MediaKind
from tests.blocks.media_makers import audio_only_bytes, number_in, video_bytes
from tests.blocks.media_opening import LIMITS, Trickle, decoded, opened, outcome, target_of


def test_variable_rate_keeps_the_containers_times() -> None:
    times_ms = [0, 10, 50, 51, 300, 301, 302, 900, 2000, 2040]
    frames = decoded(video_bytes(10, times_ms=times_ms))
    assert [frame.pts_ns for frame in frames] == [time * 1_000_000 for time in times_ms]


def test_first_frame_keeps_its_own_time() -> None:
    frames = decoded(video_bytes(5, times_ms=[500, 540, 580, 620, 660], container="matroska"))
    assert frames[0].pts_ns == 500_000_000


def test_ten_bits_are_scaled_not_misread() -> None:
    eight, ten = decoded(video_bytes(3)), decoded(video_bytes(3, pix_fmt="yuv420p10le"))
    difference = np.abs(eight[1].luma.astype(int) - ten[1].luma.astype(int))
    assert difference.mean() < 2


@pytest.mark.parametrize("size", [(50, 38), (66, 50), (318, 180)])
def test_rows_longer_than_the_width_are_not_skewed(size: tuple[int, int]) -> None:
    frames = decoded(video_bytes(3, size=size))
    assert frames[2].luma.shape == size[::-1]
    assert [number_in(frame.luma) for frame in frames] == [0, 1, 2]


@pytest.mark.parametrize(("rotation", "turns"), [(90, 1), (180, 2), (-90, 3)])
def test_rotation_is_applied_to_extracted_frames(rotation: int, turns: int) -> None:
    data = video_bytes(3, rotation=rotation)
    (_, picture), *_ = opened(data).extract([target_of(decoded(data)[1])])
    assert number_in(np.rot90(picture, -turns)) == 1
    assert picture.shape == ((64, 48, 3) if turns % 2 else (48, 64, 3))


@pytest.mark.parametrize(("aspect", "shape"), [(Fraction(4, 3), (48, 85, 3)), (Fraction(1, 2), (96, 64, 3))])
def test_extracted_pixels_are_square(aspect: Fraction, shape: tuple[int, int, int]) -> None:
    data = video_bytes(3, sample_aspect=aspect)
    source = opened(data)
    assert source.probe().sample_aspect_ratio == (aspect.numerator, aspect.denominator)
    (_, picture), *_ = source.extract([FrameTarget(0, decoded(data)[0].pts_ns)])
    assert picture.shape == shape


def test_size_change_in_mid_stream() -> None:
    data = video_bytes(5, container="mpegts") + video_bytes(5, container="mpegts", size=(96, 64), first=5)
    frames = decoded(data)
    assert {frame.luma.shape for frame in frames} == {(48, 64), (64, 96)}
    assert number_in(frames[-1].luma) == 9


def test_exact_extraction_across_keyframes_and_open_gops() -> None:
    for options in ({}, {"x264-params": "open-gop=1:bframes=3:keyint=12:min-keyint=12"}):
        data = video_bytes(120, gop=12, options=options)
        frames = decoded(data)
        wanted = [1, 11, 12, 13, 47, 48, 119]
        pictures = dict(opened(data).extract([target_of(frames[index]) for index in wanted]))
        assert {index: number_in(picture) for index, picture in pictures.items()} == {index: index for index in wanted}
        all_pictures = dict(opened(data).extract([target_of(frame) for frame in frames]))
        assert all(np.array_equal(all_pictures[index], picture) for index, picture in pictures.items())


def test_extraction_never_decodes_far_more_than_it_must(monkeypatch: pytest.MonkeyPatch) -> None:
    data = video_bytes(200, gop=10)
    source = opened(data)
    counted = 0
    pts_of = VideoSource._pts_ns

    def counting(self: VideoSource, frame: Any, index: int) -> int:
        nonlocal counted
        counted += 1
        return pts_of(self, frame, index)

    monkeypatch.setattr(VideoSource, "_pts_ns", counting)
    list(source.extract([FrameTarget(index, index * 40_000_000) for index in (5, 100, 195)]))
    assert counted <= 60
    counted = 0
    list(opened(data).extract([FrameTarget(index, index * 40_000_000) for index in range(200)]))
    assert counted == 200


def test_extraction_with_times_that_are_wrong_is_refused() -> None:
    with pytest.raises(CorruptMedia, match="another time"):
        list(opened(video_bytes(10)).extract([FrameTarget(3, 123)]))


def test_damaged_middle_is_skipped_and_reported() -> None:
    data = bytearray(video_bytes(100, noise=20.0, gop=10))
    data[len(data) // 2 : len(data) // 2 + 3000] = bytes(3000)
    source = opened(bytes(data))
    frames = list(source.frames())
    good = [frame for frame in frames if not frame.is_corrupt]
    assert 75 <= len(good) < 100
    assert number_in(good[0].luma) == 0
    assert number_in(good[-1].luma) == 99
    assert source.gaps
    assert all(0 < gap.start_ns <= gap.end_ns < 99 * 40_000_000 for gap in source.gaps)
    assert 1_000_000_000 < source.gaps[0].start_ns < 3_000_000_000


def test_cut_off_file_gives_its_frames_and_a_warning() -> None:
    data = video_bytes(100, noise=20.0, options={"movflags": "+faststart"}, container="mp4")
    data = _faststart(data)
    source = opened(data[: len(data) * 6 // 10])
    frames = list(source.frames())
    assert 50 <= sum(not frame.is_corrupt for frame in frames) <= 65
    assert "the file is cut off or damaged" in " ".join(source.warnings)
    assert (source.gaps[-1].end_ns, source.gaps[-1].cause) == (4_000_000_000, "the file is cut off")


@pytest.mark.parametrize("container", ["matroska", "webm", "avi", "fragmented"])
@pytest.mark.parametrize("share", [0.5, 0.9, 1.0])
def test_cut_container_without_a_count_has_a_gap(container: str, share: float) -> None:
    options = {"webm": {"codec": "libvpx"}, "avi": {"options": {"bf": "0"}}}.get(container, {})
    data = video_bytes(60, noise=20.0, container=container if container != "fragmented" else "mp4", **options)
    if container == "fragmented":
        data = _fragmented(data)
    source = opened(data[: round(len(data) * share)])
    frames = list(source.frames())
    assert [gap.cause for gap in source.gaps] == ["the file is cut off"] * (share < 1)
    assert bool(source.warnings) == (share < 1)
    assert (len(frames) == 60) == (share == 1)


def test_frames_left_out_by_an_edit_list_are_not_missing() -> None:
    data = bytearray(video_bytes(100, gop=10))
    at = data.find(b"elst") + 12
    data[at : at + 4] = (int.from_bytes(data[at : at + 4], "big") // 2).to_bytes(4, "big")
    source = opened(bytes(data))
    assert len(list(source.frames())) == 50
    assert source.gaps == []
    assert source.warnings == []


def test_decoder_without_memory_is_a_matter_of_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    class Starved:
        def __init__(self, track: Any) -> None:
            self._track = track

        def __getattr__(self, name: str) -> Any:
            return self if name == "codec_context" else getattr(self._track, name)

        def decode(self, packet: Any) -> Any:
            raise av.error.MemoryError(12, "Cannot allocate memory")

    source = opened(video_bytes(3))
    monkeypatch.setattr(source, "_stream", Starved(source._stream))  # type: ignore[attr-defined]
    monkeypatch.setattr(source, "_packets_or_flush", lambda: iter([None]))
    with pytest.raises(BudgetExceeded, match="max_child_rss_bytes"):
        list(source.frames())


def _fragmented(data: bytes) -> bytes:
    out = io.BytesIO()
    options = {"movflags": "frag_keyframe+default_base_moof+empty_moov"}
    with av.open(io.BytesIO(data)) as source, av.open(out, "w", format="mp4", options=options) as target:
        track = source.streams.video[0]
        copy = target.add_stream_from_template(track)
        for packet in source.demux(track):
            if packet.dts is not None:
                packet.stream = copy
                target.mux(packet)
    return out.getvalue()


def _faststart(data: bytes) -> bytes:
    """Move the index of a plain MP4 before its frames, as web servers want it."""
    with tempfile.NamedTemporaryFile(suffix=".mp4") as file:
        with av.open(io.BytesIO(data)) as source, av.open(file.name, "w", options={"movflags": "+faststart"}) as target:
            track = source.streams.video[0]
            copy = target.add_stream_from_template(track)
            for packet in source.demux(track):
                if packet.dts is not None:
                    packet.stream = copy
                    target.mux(packet)
        return file.read()


def test_missing_index_is_named() -> None:
    data = video_bytes(50, noise=20.0)
    with pytest.raises(CorruptMedia, match=r"its index \(moov\) is missing: the file is cut off"):
        opened(data[: len(data) // 2])


def test_audio_only() -> None:
    with pytest.raises(UnsupportedMedia, match="has an audio track but no picture"):
        opened(audio_only_bytes())


def test_zero_frames() -> None:
    data = bytearray(video_bytes(30, noise=20.0))
    start, end = data.find(b"mdat") + 4, data.find(b"moov") - 4
    data[start:end] = bytes(end - start)
    with pytest.raises(CorruptMedia, match=r"no frame could be decoded|damaged"):
        decoded(bytes(data))


def test_scrambled_payload_is_called_damaged_or_encrypted() -> None:
    data = bytearray(video_bytes(60, noise=20.0))
    start, end = data.find(b"mdat") + 2000, data.find(b"moov") - 4
    rng = np.random.default_rng(3)
    for at in range(start, end - 16, 16):  # lengths of units stay readable, contents do not
        if rng.random() < 0.8:
            data[at + 6 : at + 14] = rng.bytes(8)
    found = outcome(bytes(data))
    assert isinstance(found, CorruptMedia)
    assert "damaged all over or encrypted" in found.message or "no frame" in found.message


def test_playlists_and_foreign_containers_are_not_followed() -> None:
    playlist = b"#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXTINF:10,\nfile:///etc/hostname\n"
    with pytest.raises(UnsupportedMedia, match="text"):
        opened(playlist)
    with pytest.raises(CorruptMedia):
        open_source(MediaKind.VIDEO, Trickle(playlist), Limits(**LIMITS))


def test_luma_outlives_the_source() -> None:
    source = opened(video_bytes(20))
    frames = list(source.frames())
    source.close()
    assert [number_in(frame.luma) for frame in frames] == list(range(20))
