"""Writing video files: frames with their own times through any FFmpeg encoder; clips repeated without decoding."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tasks.records.errors import ConfigurationError

NS = 1_000_000_000

# MPEG-4 part 2 admits no denominator above 65535; this one holds 24, 25, 30, 50 and 60 frames a second exactly.
_TIME_BASE = Fraction(1, 60_000)
_ENCODERS = {"h264": "libx264", "hevc": "libx265", "vp9": "libvpx-vp9", "vp8": "libvpx", "av1": "libsvtav1"}
_FIXED_RATE_CONTAINERS = {"avi"}
_FIXED_RATE_CODECS = {"mpeg1video", "mpeg2video"}
_CONTAINERS = {"mkv": "matroska", "mp4": "mp4", "mov": "mov", "avi": "avi", "webm": "webm"}
_PREFERRED_FORMATS = ("yuv420p", "yuvj420p", "yuv422p", "yuvj422p", "yuv444p", "bgr0", "rgb24", "gbrp")


@dataclass(frozen=True)
class WrittenClip:
    """Frames written, time of the last one, size of the file."""

    frames: int
    last_pts_ns: int
    size_bytes: int


def write_clip(
    path: Path,
    frames: Iterable[tuple[int, npt.NDArray[np.uint8]]],
    *,
    codec: str = "h264",
    container: str | None = None,
    fps: float = 25.0,
    pix_fmt: str | None = None,
    options: Mapping[str, str] | None = None,
) -> WrittenClip:
    """Encode frames into a file one at a time; memory does not grow with the length.

    Args:
        path: the file; its suffix names the container unless ``container`` does.
        frames: (pts_ns, pixels (H, W, 3) uint8 RGB), times rising; they are kept (to 17 microseconds, in Matroska to a
            millisecond) except in AVI and MPEG-1 and -2, which know only a fixed rate.
        codec: a codec's or encoder's name as FFmpeg has it.
        container: ``mp4``, ``mov``, ``mkv``, ``webm``, ``avi`` or a muxer's name.
        fps: nominal rate, and the real one where only a fixed rate is known.
        pix_fmt: pixel format of the file; the encoder's most usual one when None.
        options: the encoder's own options.

    Raises:
        ConfigurationError: no such codec or container, a size or format it can't write, no frames, times not rising.
    """
    import av

    iterator = iter(frames)
    first = next(iterator, None)
    if first is None:
        raise ConfigurationError(f"no frames to write to {path.name}")
    height, width = first[1].shape[:2]
    muxer = container or path.suffix.lstrip(".")
    rate = Fraction(fps).limit_denominator(1001)
    fixed = muxer in _FIXED_RATE_CONTAINERS or codec in _FIXED_RATE_CODECS
    time_base = 1 / rate if fixed else _TIME_BASE
    count, last_pts, last_ns = 0, -1, 0
    try:
        with av.open(str(path), "w", format=_CONTAINERS.get(muxer, muxer)) as output:
            stream: Any = output.add_stream(_encoder(codec), rate=rate, options=dict(options or {}))
            stream.width, stream.height = width, height
            stream.pix_fmt = pix_fmt or _usual_format(stream.codec)
            if muxer in _FIXED_RATE_CONTAINERS:
                stream.codec_context.max_b_frames = 0  # AVI has no room for a second time
            stream.time_base = time_base
            stream.codec_context.time_base = time_base
            item: tuple[int, npt.NDArray[np.uint8]] | None = first
            while item is not None:
                pts_ns, pixels = item
                pts = count if fixed else round(Fraction(pts_ns, NS) / time_base)
                if pts <= last_pts or pixels.shape != (height, width, 3):
                    raise ConfigurationError(
                        f"frame {count} of {path.name} does not follow: {pts_ns = } after {last_ns}, {pixels.shape = }"
                    )
                frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(pixels), format="rgb24")
                frame.pts, frame.time_base = pts, time_base
                output.mux(stream.encode(frame))
                count, last_pts, last_ns = count + 1, pts, pts_ns
                item = next(iterator, None)
            output.mux(stream.encode(None))
    except (av.FFmpegError, av.codec.codec.UnknownCodecError, ValueError) as error:
        raise ConfigurationError(
            f"cannot write {path.name} as {codec} {width} x {height} in {muxer}: {error}"
        ) from error
    return WrittenClip(count, last_ns, path.stat().st_size)


def loop_file(source: Path, target: Path, times: int) -> int:
    """Repeat a clip's packets ``times`` over without decoding; every stream's times go on rising.

    Args:
        source: a file that starts with a key frame in every stream.
        target: its suffix names the container.
        times: how often, 1 copies it.

    Returns:
        Packets written.

    Raises:
        ConfigurationError: ``times`` is under 1, or the container can't hold the streams.
    """
    import av

    if times < 1:
        raise ConfigurationError(f"a clip can't be repeated {times} times")
    written = 0
    try:
        with av.open(str(source)) as reader:
            period = _period(reader)
        muxer = target.suffix.lstrip(".")
        with av.open(str(target), "w", format=_CONTAINERS.get(muxer, muxer)) as output:
            copies: dict[int, Any] = {}
            for turn in range(times):
                with av.open(str(source)) as reader:
                    for stream in reader.streams:
                        if stream.index not in copies and turn == 0 and stream.type in ("video", "audio"):
                            copies[stream.index] = output.add_stream_from_template(stream, opaque=True)
                    for packet in _timed_packets(reader):
                        copy = copies.get(packet.stream.index)
                        if copy is None:
                            continue
                        shift = round(turn * period / packet.time_base)
                        packet.dts += shift
                        if packet.pts is not None:
                            packet.pts += shift
                        packet.stream = copy
                        output.mux(packet)
                        written += 1
    except (av.FFmpegError, ValueError) as error:
        raise ConfigurationError(f"cannot repeat {source.name} into {target.name}: {error}") from error
    return written


def _period(reader: Any) -> Fraction:
    """Measure how long one turn lasts in seconds: the longest stream, with one mean interval after its last packet."""
    times: dict[int, list[tuple[Fraction, Fraction]]] = {}
    for packet in _timed_packets(reader):
        shown = packet.dts if packet.pts is None else packet.pts
        times.setdefault(packet.stream.index, []).append((packet.dts * packet.time_base, shown * packet.time_base))
    longest = Fraction(0)
    for stamps in times.values():
        spans = [max(axis) - min(axis) for axis in zip(*stamps, strict=True)]
        interval = spans[1] / (len(stamps) - 1) if len(stamps) > 1 else Fraction(1, 25)
        longest = max(longest, max(spans) + interval)
    return longest


def _timed_packets(reader: Any) -> Iterator[Any]:
    """Yield packets with rising decoding times; Matroska keeps none, so that a reader knows only some of them."""
    last: dict[int, int] = {}
    waiting: dict[int, list[Any]] = {}
    for packet in reader.demux():
        index = packet.stream.index
        if packet.size == 0:
            continue
        if packet.dts is None and index not in last:
            waiting.setdefault(index, []).append(packet)
            continue
        early = waiting.pop(index, [])
        for place, held in enumerate(early):
            held.dts = packet.dts - len(early) + place
            yield held
        if packet.dts is None or packet.dts <= last.get(index, packet.dts - 1):
            packet.dts = last[index] + 1
        last[index] = packet.dts
        yield packet
    for held_packets in waiting.values():
        for held in held_packets:
            held.dts = held.pts
            yield held


def _encoder(codec: str) -> str:
    import av

    name = _ENCODERS.get(codec, codec)
    return name if name in av.codecs_available else codec


def _usual_format(codec: Any) -> str:
    if codec.name == "mjpeg":
        return "yuvj420p"
    names = [video_format.name for video_format in codec.video_formats or ()]
    return next((name for name in _PREFERRED_FORMATS if name in names), names[0] if names else "yuv420p")
