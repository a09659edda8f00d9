from collections.abc import Iterator
from pathlib import Path

import av
import numpy as np
import pytest

from blocks.clip_writer import loop_file, write_clip
from tasks.algorithms.clips import ClipScript, ClipSpan, frame_times, render_clip
from tasks.records.errors import ConfigurationError

CLIP = ClipScript(128, 96, (ClipSpan("static", 1.0), ClipSpan("cut", 1.0)), variable_rate=True, seed=2)
FORMATS = [
    ("h264", "mp4"),
    ("h264", "mkv"),
    ("hevc", "mp4"),
    ("mpeg4", "mp4"),
    ("mjpeg", "mov"),
    ("ffv1", "mkv"),
    ("vp9", "webm"),
]


def decoded(path: Path) -> tuple[list[int], list[np.ndarray]]:
    with av.open(str(path)) as container:
        frames = list(container.decode(video=0))
    return [round(frame.time * 1e9) for frame in frames], [frame.to_ndarray(format="rgb24") for frame in frames]


@pytest.mark.parametrize(("codec", "suffix"), FORMATS)
def test_frames_come_back_at_their_times(codec: str, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"clip.{suffix}"
    written = write_clip(path, render_clip(CLIP), codec=codec)
    times, pictures = decoded(path)
    assert written.frames == len(times) == len(frame_times(CLIP))
    assert written.size_bytes == path.stat().st_size
    tolerance_ns = 1_000_000 if suffix in ("mkv", "webm") else 20_000
    assert np.abs(np.array(times) - frame_times(CLIP)).max() <= tolerance_ns
    original = next(pixels for _, pixels in render_clip(CLIP))
    assert np.abs(pictures[0].astype(int) - original).mean() < 8


def test_avi_keeps_the_frames_at_a_fixed_rate(tmp_path: Path) -> None:
    path = tmp_path / "clip.avi"
    write_clip(path, render_clip(CLIP), codec="mpeg4", fps=20)
    times, _ = decoded(path)
    assert np.allclose(np.diff(times), 50_000_000)


def test_options_and_pixel_format_reach_the_encoder(tmp_path: Path) -> None:
    sizes = {}
    for crf in ("18", "40"):
        path = tmp_path / f"{crf}.mp4"
        sizes[crf] = write_clip(path, render_clip(CLIP), pix_fmt="yuv444p", options={"crf": crf}).size_bytes
        with av.open(str(path)) as container:
            assert container.streams.video[0].pix_fmt == "yuv444p"
    assert sizes["18"] > 2 * sizes["40"]


def test_frames_are_taken_one_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "clip.mkv"
    largest = 0

    def frames() -> Iterator[tuple[int, np.ndarray]]:
        nonlocal largest
        noise = np.random.default_rng(0).integers(0, 255, (96, 128, 3), dtype=np.uint8)
        for index in range(200):
            largest = max(largest, path.stat().st_size if path.exists() else 0)
            yield index * 40_000_000, noise

    write_clip(path, frames(), codec="ffv1")
    assert largest > 0.8 * path.stat().st_size


@pytest.mark.parametrize(("codec", "suffix"), [("h264", "mp4"), ("h264", "mkv"), ("mpeg4", "avi"), ("h264", "mov")])
def test_a_looped_clip_goes_on_in_time(codec: str, suffix: str, tmp_path: Path) -> None:
    source, target = tmp_path / f"one.{suffix}", tmp_path / f"many.{suffix}"
    write_clip(source, render_clip(CLIP), codec=codec)
    assert loop_file(source, target, 5) == 5 * len(frame_times(CLIP))
    times, pictures = decoded(target)
    once, first = decoded(source)
    assert len(times) == 5 * len(once)
    assert all(np.diff(times) > 0)
    turns = np.array(times).reshape(5, -1)
    assert np.abs((turns - turns[:, :1]) - (turns[0] - turns[0, 0])).max() <= 1_000_000
    assert np.array_equal(pictures[-1], first[-1])


def test_what_cannot_be_written_is_refused(tmp_path: Path) -> None:
    picture = np.zeros((96, 128, 3), np.uint8)
    with pytest.raises(ConfigurationError, match="no frames"):
        write_clip(tmp_path / "a.mp4", [])
    with pytest.raises(ConfigurationError, match="does not follow"):
        write_clip(tmp_path / "b.mp4", [(40_000_000, picture), (0, picture)])
    with pytest.raises(ConfigurationError, match=r"c\.mp4"):
        write_clip(tmp_path / "c.mp4", [(0, picture)], codec="papyrus")
    with pytest.raises(ConfigurationError, match=r"d\.mp4"):
        write_clip(tmp_path / "d.mp4", [(0, picture[:95, :127])])
    with pytest.raises(ConfigurationError, match="0 times"):
        loop_file(tmp_path / "a.mp4", tmp_path / "e.mp4", 0)
