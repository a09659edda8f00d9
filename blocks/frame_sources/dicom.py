"""DICOM pictures through pydicom, one frame at a time; the whole array never exists."""

import warnings
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pydicom
from pydicom.encaps import encapsulate
from pydicom.pixels.decoders.base import get_decoder
from pydicom.pixels.utils import as_pixel_options

from blocks.frame_source import NO_TIME, ByteImage, DecodedFrame, FrameLog, FrameTarget, Limits
from blocks.frame_sources.dicom_display import Display
from blocks.frame_sources.dicom_header import frame_count, frame_times_ns, read_header
from blocks.frame_sources.encapsulated import Fragments, frame_fragments, read_fragments, walk_fragments
from blocks.frame_sources.pixels import checked, square_pixels, to_luma, to_rgb
from tasks.records.errors import CorruptMedia, ScopeFlowError, UnsupportedMedia
from tasks.records.media import MediaProbe

_NEEDED = ("Rows", "Columns", "BitsAllocated", "PhotometricInterpretation")


class DicomSource:
    """Frames of one DICOM object, as a viewer shows them by default.

    ``frame_index`` is the stored frame number; a frame that can't be decoded is delivered as a damaged one. Times are
    FrameTimeVector, FrameTime or a display rate, else there are none.

    Args:
        stream: seekable, whose ``read(n)`` gives n bytes.
        limits: frames, pixels and time.
    """

    def __init__(self, stream: BinaryIO, limits: Limits) -> None:
        self._limits = limits
        self._log = FrameLog()
        self.gaps, self.warnings = self._log.gaps, self._log.warnings
        self._header = read_header(stream)
        self.decoder = f"pydicom {pydicom.__version__}"
        self._fragments: Fragments | None = None
        self._frames: list[range] = []
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self._set_up()
        except ScopeFlowError:
            raise
        except Exception as error:
            raise CorruptMedia("is DICOM whose description of its picture is damaged") from error

    def _set_up(self) -> None:
        dataset, syntax = self._header.dataset, self._header.syntax
        missing = [name for name in _NEEDED if dataset.get(name) in (None, "")]
        if missing:
            raise CorruptMedia(f"is DICOM whose header lacks {', '.join(missing)}")
        self._declared = frame_count(dataset)
        self.frames_declared: int | None = self._declared
        self._height, self._width = int(dataset.Rows), int(dataset.Columns)
        self._bits_stored = int(dataset.get("BitsStored") or dataset.BitsAllocated)
        self._photometric = str(dataset.PhotometricInterpretation)
        self._limits.check_pixels(self._width, self._height)
        try:
            self._decoder = get_decoder(syntax)
        except NotImplementedError:
            raise UnsupportedMedia(f"is DICOM in a compression that isn't supported ({syntax.name})") from None
        self._display = Display(dataset)
        self._options = self._pixel_options()
        self._count = self._index_frames()
        self._times_ns = frame_times_ns(dataset, self._declared, most=self._count)

    def probe(self) -> MediaProbe:
        """Return what the header says."""
        count = self._declared
        duration_ns = None
        rate = None
        if self._times_ns is not None and count > 1:
            duration_ns = round((self._length_ns() or 0) * count / (count - 1))
            rate = count / (duration_ns / 1e9) if duration_ns else None
        return MediaProbe(
            container="DICOM",
            codec=str(self._header.syntax),
            width_px=self._width,
            height_px=self._height,
            frame_count_from_header=count,
            duration_ns_from_header=duration_ns,
            average_fps_from_header=rate,
            bits_stored=self._bits_stored,
            photometric_interpretation=self._photometric,
        )

    def _length_ns(self) -> int | None:
        """Return the time of the last declared frame; beyond the frames that are there, at their mean rate."""
        if self._times_ns is None or len(self._times_ns) < 2:
            return None
        return round(self._times_ns[-1] * (self._declared - 1) / (len(self._times_ns) - 1))

    def frames(self) -> Iterator[DecodedFrame]:
        """Yield every stored frame in order."""
        for index in range(self._count):
            self._limits.check_frames(index + 1)
            pts_ns = self._times_ns[index] if self._times_ns is not None else NO_TIME
            shown = self._shown_or_none(index)
            self._log.note_frame(pts_ns, shown is None)
            picture = np.zeros((self._height, self._width), np.uint8) if shown is None else shown
            yield DecodedFrame(index, pts_ns, shown is None, lambda image=picture: to_luma(image))  # type: ignore[misc]
        if self._count < self._declared:
            self._log.cut_off(
                f"the file is cut off: {self._count:,} of {self._declared:,} frames are there",
                frames=self._declared,
                length_ns=self._length_ns(),
            )
        self._log.finish(f"{self._declared:,} frames")

    def extract(self, targets: Sequence[FrameTarget]) -> Iterator[tuple[int, ByteImage]]:
        """Yield the targets' pictures; each frame is decoded by itself."""
        aspect = self._sample_aspect()
        for target in targets:
            self._limits.check_frames(0)
            shown = self._shown_or_none(target.frame_index) if target.frame_index < self._count else None
            if shown is None:
                raise CorruptMedia(f"frame {target.frame_index} can't be decoded again")
            yield target.frame_index, square_pixels(to_rgb(shown), aspect)

    def close(self) -> None:
        """Free nothing: no decoder outlives a frame."""

    # -- where the frames lie -----------------------------------------------------------------------------------

    def _pixel_options(self) -> dict[str, Any]:
        options = as_pixel_options(self._header.dataset, number_of_frames=1)
        options.pop("extended_offsets", None)
        options["pixel_keyword"] = self._header.keyword
        if self._header.vr is not None:
            options["pixel_vr"] = self._header.vr
        return options

    def _index_frames(self) -> int:
        """Return how many frames are there in full."""
        declared, header = self._declared, self._header
        if not self._decoder.is_native:
            self._fragments = walk_fragments(header.stream, header.start, header.end)
            table = header.dataset.get("ExtendedOffsetTable") or b""
            extended = np.frombuffer(table[: len(table) // 8 * 8], "<u8").tolist()
            self._frames = frame_fragments(header.stream, self._fragments, declared, extended)
            if not self._frames:
                raise CorruptMedia("its pixel data is cut off before the end of the first frame")
            return len(self._frames)
        there, needed_bits = header.end - header.start, self._frame_bits()
        count = min(declared, there * 8 // needed_bits) if needed_bits else 0
        if count == 0:
            raise CorruptMedia(
                f"its pixel data is cut off ({there:,} bytes are there, {needed_bits // 8:,} make a frame)"
            )
        return count

    def _frame_bits(self) -> int:
        dataset = self._header.dataset
        samples = int(dataset.get("SamplesPerPixel") or 1)
        bits = self._width * self._height * samples * int(dataset.BitsAllocated)
        return bits * 2 // 3 if dataset.PhotometricInterpretation == "YBR_FULL_422" else bits

    # -- one frame ----------------------------------------------------------------------------------------------

    def _shown_or_none(self, index: int) -> ByteImage | None:
        """Return a frame in 8 bits, or None when it is damaged; a stream's own errors come through."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                values, photometric = self._stored(index)
            return checked(self._display.show(values, photometric, index))
        except (ScopeFlowError, KeyboardInterrupt, SystemExit):
            raise
        except BaseException:  # a panic of the RLE decoder, which is written in Rust, is no Exception
            return None

    def _stored(self, index: int) -> tuple[npt.NDArray[Any], str]:
        header = self._header
        if self._fragments is not None:
            frame = read_fragments(header.stream, self._fragments, self._frames[index])
            source: Any = encapsulate([frame], has_bot=False)
            index, count = 0, 1
        else:
            header.stream.seek(header.start)
            source, count = header.stream, self._count
        options = {**self._options, "number_of_frames": count}
        values, facts = self._decoder.as_array(source, index=index, validate=True, **options)
        return values, str(facts["photometric_interpretation"])

    def _sample_aspect(self) -> tuple[float, float]:
        """Return width and height of a pixel; PixelAspectRatio (0028,0034) names the vertical first."""
        ratio = self._header.dataset.get("PixelAspectRatio")
        try:
            return (float(ratio[1]), float(ratio[0])) if ratio else (1.0, 1.0)
        except (ValueError, TypeError, IndexError):
            return 1.0, 1.0
