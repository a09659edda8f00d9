"""Bad input ends in a report that a person understands: failed or partial, published, and nothing half-written."""

import io
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from tasks.records.report import MediaReport
from tests.blocks.media_makers import dicom_bytes, numbered, video_bytes
from tests.flows.test_analyze_media import analyse, of_any_run

Maker = Callable[[Path, Path], Path]


def zero_bytes(folder: Path, clip: Path) -> Path:
    return _written(folder / "a.mp4", b"")


def hundred_bytes(folder: Path, clip: Path) -> Path:
    return _written(folder / "a.mp4", clip.read_bytes()[:100])


def text_file(folder: Path, clip: Path) -> Path:
    return _written(folder / "a.mp4", b"Findings: none. Signed by nobody.\n" * 40)


def truncated(folder: Path, clip: Path) -> Path:
    """The index at the end is lost."""
    return _written(folder / "a.mp4", clip.read_bytes()[: clip.stat().st_size * 6 // 10])


def audio_only(folder: Path, clip: Path) -> Path:
    path = folder / "a.mp4"
    with av.open(str(path), "w") as target:
        stream = target.add_stream("aac", rate=48_000)
        for index in range(20):
            frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
            frame.sample_rate, frame.pts = 48_000, index * 1024
            target.mux(stream.encode(frame))
        target.mux(stream.encode(None))
    return path


def no_frames(folder: Path, clip: Path) -> Path:
    """A real header with an empty sample table: the `moov` box of a fragmented file, without its fragments."""
    path = folder / "fragmented.mp4"
    with (
        av.open(str(clip)) as source,
        av.open(str(path), "w", options={"movflags": "empty_moov+frag_keyframe"}) as target,
    ):
        stream = target.add_stream_from_template(source.streams.video[0])
        for packet in source.demux(video=0):
            if packet.dts is not None:
                packet.stream = stream
                target.mux(packet)
    data = path.read_bytes()
    at = 0
    while data[at + 4 : at + 8] != b"moof":
        at += struct.unpack(">I", data[at : at + 4])[0]
    return _written(folder / "a.mp4", data[:at])


def encrypted(folder: Path, clip: Path) -> Path:
    path = folder / "a.mp4"
    options = {
        "encryption_scheme": "cenc-aes-ctr",
        "encryption_key": "00112233445566778899aabbccddeeff",
        "encryption_kid": "112233445566778899aabbccddeeff00",
    }
    with av.open(str(clip)) as source, av.open(str(path), "w", options=options) as target:
        stream = target.add_stream_from_template(source.streams.video[0])
        for packet in source.demux(video=0):
            if packet.dts is not None:
                packet.stream = stream
                target.mux(packet)
    return path


def directory(folder: Path, clip: Path) -> Path:
    path = folder / "a.mp4"
    path.mkdir()
    return path


def absent(folder: Path, clip: Path) -> Path:
    return folder / "a.mp4"


def cut_dicom(folder: Path, clip: Path) -> Path:
    data = dicom_bytes(np.stack([numbered(n, 128, 96)[:, :, 0] for n in range(10)]))
    return _written(folder / "a.dcm", data[: len(data) // 2])


def cut_matroska(folder: Path, clip: Path) -> Path:
    data = video_bytes(60, size=(128, 96), container="matroska", noise=20.0)
    return _written(folder / "a.mkv", data[: len(data) // 2])


def cut_after_its_index(folder: Path, clip: Path) -> Path:
    """The index stands first, so that the frames before the cut can be found."""
    path = folder / "whole.mp4"
    made = video_bytes(60, size=(128, 96), noise=20.0)
    with (
        av.open(io.BytesIO(made)) as source,
        av.open(str(path), "w", options={"movflags": "+faststart"}) as target,
    ):
        stream = target.add_stream_from_template(source.streams.video[0])
        for packet in source.demux(video=0):
            if packet.dts is not None:
                packet.stream = stream
                target.mux(packet)
    return _written(folder / "a.mp4", path.read_bytes()[: path.stat().st_size // 2])


def _written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("make", "stage", "cause", "words"),
    [
        (zero_bytes, "stream-pull", "CorruptMedia", "empty"),
        (hundred_bytes, "stream-pull", "CorruptMedia", ""),
        (text_file, "stream-pull", "UnsupportedMedia", "text"),
        (truncated, "stream-pull", "CorruptMedia", "cut"),
        (audio_only, "stream-pull", "UnsupportedMedia", "audio"),
        (no_frames, "decode", "CorruptMedia", "no frame"),
        (encrypted, "decode", "CorruptMedia", "encrypted"),
        (directory, "stream-pull", "UnsupportedMedia", "directory"),
        (absent, "stream-pull", "MediaNotFound", ""),
    ],
)
def test_it_ends_in_a_published_report_that_names_the_cause(
    make: Maker, stage: str, cause: str, words: str, clip: Path, tmp_path: Path, prefect_server: str
) -> None:
    from blocks.media_store import LocalMediaStore

    report = analyse(make(tmp_path, clip), LocalMediaStore(root=str(tmp_path / "store")))
    assert report.outcome == "failed"
    assert [(f.stage, f.cause) for f in report.failures] == [(stage, cause)]
    assert words in report.failures[0].message
    assert "Error" not in report.failures[0].message, "no class names or tracebacks in a message for people"
    _expect_nothing_but_the_report(tmp_path / "store", report)


def test_the_wrong_suffix_does_not_matter(clip: Path, tmp_path: Path, prefect_server: str) -> None:
    from blocks.media_store import LocalMediaStore

    medium = _written(tmp_path / "a.tiff", clip.read_bytes())
    assert analyse(medium, LocalMediaStore(root=str(tmp_path / "store"))).outcome == "complete"


def test_a_hole_in_the_middle_gives_a_partial_report_with_its_times(
    clip: Path, tmp_path: Path, prefect_server: str
) -> None:
    from blocks.media_store import LocalMediaStore

    data = bytearray(clip.read_bytes())
    middle = len(data) // 2
    data[middle : middle + len(data) // 12] = np.random.default_rng(4).bytes(len(data) // 12)
    report = analyse(_written(tmp_path / "a.mp4", bytes(data)), LocalMediaStore(root=str(tmp_path / "store")))
    assert report.outcome == "partial"
    assert report.signals is not None
    assert report.signals.frames_corrupt + len(report.signals.gaps) > 0
    assert report.answer is not None


@pytest.mark.parametrize("make", [cut_dicom, cut_matroska, cut_after_its_index])
def test_a_missing_end_gives_a_partial_report(make: Maker, clip: Path, tmp_path: Path, prefect_server: str) -> None:
    from blocks.media_store import LocalMediaStore

    report = analyse(make(tmp_path, clip), LocalMediaStore(root=str(tmp_path / "store")))
    assert report.outcome == "partial"
    assert report.failures == ()
    assert report.signals is not None
    assert report.signals.gaps[-1].cause == "the file is cut off"
    assert "cut off" in " ".join(report.signals.warnings)
    assert report.answer is not None


def _expect_nothing_but_the_report(store: Path, report: MediaReport) -> None:
    files: list[Any] = sorted(p.relative_to(store).parts[0] for p in store.rglob("*") if p.is_file())
    assert set(files) <= {"reports", "index", "results"}, "nothing half-written"
    published = list(store.glob("reports/*/*/report.json"))
    stored = [MediaReport.model_validate_json(p.read_bytes()) for p in published]
    assert [of_any_run(each) for each in stored] == [of_any_run(report)]
