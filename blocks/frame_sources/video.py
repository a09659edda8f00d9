"""Video through FFmpeg's libraries (PyAV), from a stream of bytes."""

import contextlib
import io
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any, BinaryIO

import av
import av.error
import av.logging

from blocks.frame_source import NO_TIME, ByteImage, DecodedFrame, FrameLog, FrameTarget, Limits
from blocks.frame_sources.container_end import is_cut_short
from blocks.frame_sources.iso_boxes import top_level_boxes
from blocks.frame_sources.video_pixels import luma_of, rgb_of
from tasks.records.errors import BudgetExceeded, CorruptMedia, UnsupportedMedia
from tasks.records.media import MediaProbe

_THREADS = 2
_BUFFER_BYTES = 1 << 20
_SEEK_MARGINS_S = (0, 10)
_FAILED_READS = 100
# Without this a crafted playlist could make FFmpeg open other files and addresses.
_CONTAINERS = "mov,matroska,avi,mpegts,mpeg,mpegvideo,h264,hevc,flv,asf,ogg,yuv4mpegpipe"

av.logging.set_level(None)


class VideoSource:
    """Frames of one video stream.

    Times are the container's own: PTS x time base, neither shifted to start at zero nor derived from a frame rate; the
    first shown frame keeps its PTS, which may be negative. Of several video streams FFmpeg's best is read (default
    flag, then size), never a cover picture.

    Args:
        stream: seekable.
        limits: frames, pixels and time.
        frame_period_ns: used where frames carry no PTS (a bare bitstream in DICOM): time is then index x period.
        wrapped: goes before the container's name in the probe.
        is_cut: the caller knows that the end of the stream is missing.
    """

    def __init__(
        self,
        stream: io.RawIOBase | BinaryIO,
        limits: Limits,
        *,
        frame_period_ns: int | None = None,
        wrapped: str = "",
        is_cut: bool = False,
    ) -> None:
        self._reader = _Reader(stream)
        self._limits = limits
        self._period_ns = frame_period_ns
        self._log = FrameLog()
        self.gaps, self.warnings = self._log.gaps, self._log.warnings
        self._wrapped = wrapped
        self._is_cut = is_cut
        self._packets = 0
        self._container = self._open()
        try:
            self._stream = self._choose_stream()
            context = self._stream.codec_context
            context.thread_type, context.thread_count = "AUTO", _THREADS
            context.options = {"max_pixels": str(limits.max_pixels_per_frame)}
            limits.check_pixels(context.width, context.height)
        except BaseException:
            self._container.close()
            raise
        version = ".".join(str(part) for part in av.library_versions["libavcodec"])
        self.decoder = f"PyAV {av.__version__} (libavcodec {version}), {context.codec.name}"
        self.frames_declared: int | None = self._stream.frames or None

    def probe(self) -> MediaProbe:
        """Return what the header says; rotation is not in it, but in the frames."""
        stream, context = self._stream, self._stream.codec_context
        aspect = stream.sample_aspect_ratio or context.sample_aspect_ratio or Fraction(1)
        return MediaProbe(
            container=self._wrapped + self._container.format.long_name,
            codec=context.name,
            width_px=context.width,
            height_px=context.height,
            frame_count_from_header=self.frames_declared,
            duration_ns_from_header=self._declared_duration_ns(),
            average_fps_from_header=float(stream.average_rate) if stream.average_rate else None,
            sample_aspect_ratio=(aspect.numerator, aspect.denominator) if aspect > 0 else (1, 1),
            pixel_format=context.pix_fmt,
            bits_stored=context.format.components[0].bits if context.format is not None else None,
            has_audio=bool(self._container.streams.audio),
        )

    def frames(self) -> Iterator[DecodedFrame]:
        """Yield every frame in presentation order; luma is the Y plane itself, without a copy."""
        for index, pts_ns, frame in self._indexed():
            self._limits.check_frames(index + 1)
            self._log.note_frame(pts_ns, frame.is_corrupt)
            yield DecodedFrame(index, pts_ns, frame.is_corrupt, lambda shown=frame: luma_of(shown))  # type: ignore[misc]
        self._note_if_cut()
        self._log.finish(self._promise(), packets=self._packets)

    def extract(self, targets: Sequence[FrameTarget]) -> Iterator[tuple[int, ByteImage]]:
        """Yield the targets' pictures in one pass: forward where that is nearer, else from the keyframe before.

        A target is found by its exact PTS. If a seek lands beyond it, or on a damaged picture, the search starts
        10 s earlier, then at the very beginning, where frames are found by their index.
        """
        waiting = list(targets)
        if all(target.pts_ns is not None and target.pts_ns != NO_TIME for target in waiting) and not self._period_ns:
            for frame_index, frame in self._by_time(tuple(waiting)):
                yield frame_index, self._rgb(frame)
                waiting.pop(0)
        if not waiting:
            return
        self._rewind()
        wanted = {target.frame_index: target for target in waiting}
        for index, pts_ns, frame in self._indexed():
            self._limits.check_frames(index + 1)
            target = wanted.pop(index, None)
            if target is not None:
                if target.pts_ns not in (None, NO_TIME, pts_ns):
                    raise CorruptMedia(f"frame {index} has another time than when it was scored")
                yield index, self._rgb(frame)
            if not wanted:
                return
        raise CorruptMedia(f"frame {min(wanted)} can't be decoded again")

    def close(self) -> None:
        """Free the decoder."""
        self._container.close()

    # -- opening ------------------------------------------------------------------------------------------------

    def _open(self) -> Any:
        try:
            return av.open(
                self._reader,
                buffer_size=_BUFFER_BYTES,
                metadata_errors="replace",
                container_options={"format_whitelist": _CONTAINERS, "protocol_whitelist": "none"},
            )
        except (av.error.FFmpegError, ValueError):
            self._reader.raise_failure()
        boxes = top_level_boxes(self._reader.stream)
        if boxes and b"moov" not in boxes:
            raise CorruptMedia("its index (moov) is missing: the file is cut off")
        raise CorruptMedia("can't be opened: its header is damaged or cut off")

    def _choose_stream(self) -> Any:
        streams = self._container.streams
        cover = av.stream.Disposition.attached_pic
        pictures = [stream for stream in streams.video if not stream.disposition & cover]
        if not pictures:
            kinds = {stream.type for stream in streams}
            if "audio" in kinds:
                raise UnsupportedMedia("has an audio track but no picture")
            if kinds:
                raise UnsupportedMedia(f"has no picture, only a track of type {', '.join(sorted(kinds))}")
            raise CorruptMedia("holds no track: its header is cut off")
        best = streams.best("video")
        chosen = best if best in pictures else max(pictures, key=lambda stream: stream.width * stream.height)
        if chosen.codec_context is None:
            raise UnsupportedMedia("its video is in a codec that this build of FFmpeg can't decode")
        return chosen

    # -- decoding -----------------------------------------------------------------------------------------------

    def _indexed(self) -> Iterator[tuple[int, int, Any]]:
        for index, frame in enumerate(self._decoded()):
            yield index, self._pts_ns(frame, index), frame

    def _decoded(self) -> Iterator[Any]:
        """Yield frames from where the demuxer stands; damaged packets are noted and passed over."""
        flushed = False
        for packet in self._packets_or_flush():
            flushed = packet is None
            try:
                yield from self._stream.codec_context.decode(packet)
            except av.error.EOFError:
                pass
            except av.error.FFmpegError as error:
                self._reader.raise_failure()
                if isinstance(error, av.error.MemoryError):
                    raise BudgetExceeded(
                        "its decoder ran out of memory; raise max_child_rss_bytes of the decode settings"
                    ) from None
                self._log.note_loss("packets that could not be decoded")
            if flushed:
                return

    def _packets_or_flush(self) -> Iterator[Any]:
        """Yield the stream's packets and then None; goes on reading after a damaged stretch."""
        failed = 0
        while failed < _FAILED_READS:
            before = self._packets
            try:
                for packet in self._container.demux(self._stream):
                    if packet.size:
                        self._packets += 1
                        yield packet
                break
            except av.error.FFmpegError:
                self._reader.raise_failure()
                self._log.note_loss("bytes that could not be read as packets")
                failed = failed + 1 if self._packets == before else 1
        self._reader.raise_failure()
        yield None

    def _pts_ns(self, frame: Any, index: int) -> int:
        ticks = frame.pts if frame.pts is not None else frame.dts
        base = frame.time_base or self._stream.time_base
        if ticks is None or not base:
            return index * self._period_ns if self._period_ns else NO_TIME
        return ticks_to_ns(ticks, base)

    def _rgb(self, frame: Any) -> ByteImage:
        aspect = self._stream.sample_aspect_ratio or self._stream.codec_context.sample_aspect_ratio or Fraction(1)
        across, down = aspect.numerator, aspect.denominator
        stretch = max(across, down) / max(1, min(across, down)) if across > 0 else 1
        self._limits.check_pixels(round(frame.width * min(stretch, 16)), frame.height)
        return rgb_of(frame, (across, down))

    # -- seeking ------------------------------------------------------------------------------------------------

    def _by_time(self, targets: Sequence[FrameTarget]) -> Iterator[tuple[int, Any]]:
        """Yield (frame_index, frame) for targets found by PTS; ends early at the first that isn't."""
        walk: Iterator[Any] = iter(())
        reached_ns: int | None = None
        for target in targets:
            wanted_ns = target.pts_ns
            assert wanted_ns is not None
            found = None
            for margin_s in _SEEK_MARGINS_S:
                if margin_s or reached_ns is None or self._is_nearer_by_seek(reached_ns, wanted_ns):
                    if not self._seek(wanted_ns - margin_s * 10**9):
                        continue
                    walk = self._decoded()
                found, reached_ns = self._walk_to(walk, wanted_ns)
                if found is not None:
                    break
            if found is None:
                return
            yield target.frame_index, found

    def _walk_to(self, walk: Iterator[Any], wanted_ns: int) -> tuple[Any | None, int | None]:
        for frame in walk:
            self._limits.check_frames(0)
            pts_ns = self._pts_ns(frame, 0)
            if pts_ns == wanted_ns:
                return (None if frame.is_corrupt else frame), pts_ns
            if pts_ns > wanted_ns:
                return None, pts_ns
        return None, None

    def _is_nearer_by_seek(self, reached_ns: int, wanted_ns: int) -> bool:
        """Tell whether a keyframe lies between the frame last decoded and the wanted one, by the container's index."""
        entries, base = self._stream.index_entries, self._stream.time_base
        if wanted_ns <= reached_ns:
            return True
        if not len(entries):
            return wanted_ns - reached_ns > 10 * 10**9
        at = entries.search_timestamp(ns_to_ticks(wanted_ns, base), backward=True)
        # Index times are decoding times, which lead presentation by a few frames: ask for a second's worth.
        return at >= 0 and ticks_to_ns(entries[at].timestamp, base) > reached_ns + 10**9

    def _seek(self, wanted_ns: int) -> bool:
        try:
            self._container.seek(ns_to_ticks(wanted_ns, self._stream.time_base), stream=self._stream, backward=True)
        except av.error.FFmpegError:
            self._reader.raise_failure()
            return False
        return True

    def _rewind(self) -> None:
        """Start again at the first packet; a fresh container, because not every demuxer can seek to its beginning."""
        self._container.close()
        self._reader.seek(0)
        self._container = self._open()
        self._stream = self._choose_stream()
        context = self._stream.codec_context
        context.thread_type, context.thread_count = "AUTO", _THREADS
        context.options = {"max_pixels": str(self._limits.max_pixels_per_frame)}

    # -- what was promised --------------------------------------------------------------------------------------

    def _declared_duration_ns(self) -> int | None:
        if self._stream.duration is not None and self._stream.duration > 0:
            return ticks_to_ns(self._stream.duration, self._stream.time_base)
        duration = self._container.duration
        return duration * 1000 if duration is not None and duration > 0 else None

    def _promise(self) -> str:
        duration_ns = self._declared_duration_ns()
        parts = [f"{self.frames_declared:,} frames"] if self.frames_declared else []
        parts += [f"{duration_ns / 1e9:,.1f} s"] if duration_ns else []
        return " in ".join(parts) or "nothing definite"

    def _note_if_cut(self) -> None:
        """Note when the file ends early; when only the header's length says so, the header may be wrong: a warning."""
        declared, delivered = self._packets_promised(), self._log.delivered
        duration_ns, shown_ns = self._declared_duration_ns(), self._log.span_ns
        if declared is not None and self._packets < declared:
            self._log.cut_off(
                f"the file is cut off or damaged: {delivered:,} of {declared:,} frames were there to decode",
                frames=declared,
                length_ns=duration_ns,
            )
            return
        if self._is_cut or is_cut_short(self._reader.stream):
            self._log.cut_off("the file is cut off: it ends before its last part does", length_ns=duration_ns)
            return
        only_picture = self._stream.duration is not None or len(self._container.streams) == 1
        if (
            declared is None
            and duration_ns
            and only_picture
            and shown_ns + max(1_500_000_000, duration_ns // 100) < duration_ns
        ):
            self._log.warn(
                f"the header says {duration_ns / 1e9:,.1f} s but the frames end after {shown_ns / 1e9:,.1f} s: "
                "the file is cut off or its header is wrong"
            )

    def _packets_promised(self) -> int | None:
        """Return how many packets of picture data there should be; None where nothing says so reliably.

        In MP4 FFmpeg's index tells: it holds the samples of fragments, and none that an edit list leaves out.
        """
        name: str = self._container.format.name
        entries = self._stream.index_entries
        if name.startswith("mov") and len(entries):
            if self._packets < len(entries):
                return len([entry for entry in entries if entry.size])
            return self._packets if self.frames_declared else None
        # AVI counts empty packets too, which stand for "as before".
        return None if name == "avi" else self.frames_declared


def ticks_to_ns(ticks: int, base: Fraction) -> int:
    """Return ticks x time base in whole nanoseconds, never the value that means "no time"."""
    ns = round(ticks * base.numerator * 10**9 / Fraction(base.denominator))
    return ns if ns != NO_TIME else 0


def ns_to_ticks(ns: int, base: Fraction) -> int:
    """Return nanoseconds in ticks of a time base, rounded down."""
    return (ns * base.denominator) // (base.numerator * 10**9)


class _Reader:
    """The stream as FFmpeg reads it. Remembers what the stream raised, since FFmpeg only knows "I/O error"."""

    def __init__(self, stream: io.RawIOBase | BinaryIO) -> None:
        self.stream = stream
        self._failure: Exception | None = None

    def read(self, size: int) -> bytes:
        try:
            return self.stream.read(size) or b""
        except Exception as error:
            self._failure = error
            raise

    def seek(self, offset: int, whence: int = 0) -> int:
        try:
            return self.stream.seek(offset, whence)
        except Exception as error:
            self._failure = error
            raise

    def tell(self) -> int:
        return self.stream.tell()

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self.stream.seek(0)

    def raise_failure(self) -> None:
        """Raise what the stream raised, if anything."""
        if self._failure is not None:
            raise self._failure
