"""DICOM whose pixel data is one MPEG-2, H.264 or HEVC bitstream: handed to the video source piece by piece."""

from typing import BinaryIO

from blocks.frame_source import Limits
from blocks.frame_sources.dicom_header import frame_count, frame_times_ns, read_header
from blocks.frame_sources.encapsulated import FragmentStream, walk_fragments
from blocks.frame_sources.video import VideoSource
from tasks.records.errors import CorruptMedia


def open_dicom_video(stream: BinaryIO, limits: Limits) -> VideoSource:
    """Open the bitstream inside a DICOM object; a pad byte at its end does no harm.

    Where the bitstream has no times of its own, FrameTime or a display rate of the header gives them.

    Args:
        stream: seekable, whose ``read(n)`` gives n bytes.
        limits: frames, pixels and time.
    """
    header = read_header(stream)
    fragments = walk_fragments(header.stream, header.start, header.end)
    if not fragments.starts:
        raise CorruptMedia("is video DICOM without any video data: the file is cut off")
    times_ns = frame_times_ns(header.dataset, max(2, frame_count(header.dataset)), most=2)
    period_ns = times_ns[1] if times_ns else None
    return VideoSource(
        FragmentStream(header.stream, fragments),
        limits,
        frame_period_ns=period_ns,
        wrapped="DICOM ",
        is_cut=not fragments.is_complete,
    )
