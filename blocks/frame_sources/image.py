"""PNG, JPEG, WebP, GIF, BMP, JPEG 2000 and AVIF through Pillow."""

import itertools
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import numpy as np
import PIL
from PIL import Image, ImageOps

from blocks.frame_source import NO_TIME, ByteImage, DecodedFrame, FrameLog, FrameTarget, Limits
from blocks.frame_sources.pixels import checked, to_display, to_luma, to_rgb
from tasks.records.errors import BudgetExceeded, CorruptMedia, ScopeFlowError
from tasks.records.media import MediaProbe

_FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "JPEG2000", "AVIF")
_ANIMATED = ("PNG", "WEBP", "GIF", "AVIF")
_DEEP_MODES = ("I", "F", "I;16", "I;16L", "I;16B", "I;16N")


class ImageSource:
    """One picture, or the frames of an animated one, upright by its EXIF orientation.

    Greys deeper than 8 bits are shown by their 0.5 and 99.5 percentiles; transparent parts are black. Only animations
    have times: the sum of the durations before.

    Args:
        stream: seekable, whose ``read(n)`` gives n bytes.
        limits: frames, pixels and time.
    """

    def __init__(self, stream: BinaryIO, limits: Limits) -> None:
        self._limits = limits
        self._log = FrameLog()
        self.gaps, self.warnings = self._log.gaps, self._log.warnings
        self._stream = stream
        Image.MAX_IMAGE_PIXELS = limits.max_pixels_per_frame
        self._image = self._open()
        limits.check_pixels(*self._image.size)
        self.frames_declared: int | None = self._count()
        self.decoder = f"Pillow {PIL.__version__}"

    def probe(self) -> MediaProbe:
        """Return what the header says."""
        width, height = self._image.size
        return MediaProbe(
            container=str(self._image.format),
            width_px=width,
            height_px=height,
            frame_count_from_header=self.frames_declared,
            pixel_format=self._image.mode,
        )

    def frames(self) -> Iterator[DecodedFrame]:
        """Yield the picture, or every frame of an animation."""
        count = self.frames_declared
        elapsed_ms = 0.0
        for index in itertools.count() if count is None else range(count):
            self._limits.check_frames(index + 1)
            shown = self._shown_or_none(index)
            if shown is None and index == 0:
                raise CorruptMedia("its picture data is damaged or cut off")
            if shown is None:  # later frames of an animation build on this one
                self._log.cut_off(f"the file is cut off or damaged after {index} frames", frames=count)
                break
            pts_ns = round(elapsed_ms * 1e6) if count != 1 else NO_TIME
            elapsed_ms += float(self._image.info.get("duration") or 0.0)
            self._log.note_frame(pts_ns, False)
            yield DecodedFrame(index, pts_ns, False, lambda image=shown: to_luma(image))  # type: ignore[misc]
        self._log.finish("at least one frame")

    def extract(self, targets: Sequence[FrameTarget]) -> Iterator[tuple[int, ByteImage]]:
        """Yield the targets' pictures; animations are played from where they stand."""
        for target in targets:
            self._limits.check_frames(0)
            shown = self._shown_or_none(target.frame_index)
            if shown is None:
                raise CorruptMedia(f"frame {target.frame_index} can't be decoded again")
            yield target.frame_index, to_rgb(shown)

    def close(self) -> None:
        """Free the picture."""
        self._image.close()

    def _open(self) -> Image.Image:
        self._stream.seek(0)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return Image.open(self._stream, formats=_FORMATS)
        except ScopeFlowError:
            raise
        except Image.DecompressionBombError:
            raise self._too_large() from None
        except Exception as error:  # Pillow's parsers raise whatever a damaged byte leads to
            raise CorruptMedia("can't be opened: its header is damaged or cut off") from error

    def _count(self) -> int | None:
        """Return the number of frames; None where the file is too damaged to count them."""
        if self._image.format not in _ANIMATED:
            return 1
        try:
            return int(getattr(self._image, "n_frames", 1))
        except ScopeFlowError:
            raise
        except Exception:
            return None

    def _shown_or_none(self, index: int) -> ByteImage | None:
        """Return a frame in 8 bits, upright, or None when it is damaged; a stream's own errors come through."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                if index or self._image.tell():
                    self._image.seek(index)
                return checked(_shown(ImageOps.exif_transpose(self._image)))
        except ScopeFlowError:
            raise
        except Image.DecompressionBombError:
            raise self._too_large() from None
        except Exception:
            return None

    def _too_large(self) -> ScopeFlowError:
        return BudgetExceeded(
            f"has a picture of more than {self._limits.max_pixels_per_frame:,} pixels; "
            "raise max_pixels_per_frame of the decode settings"
        )


def _shown(image: Image.Image) -> ByteImage:
    if image.mode in _DEEP_MODES:
        values: Any = np.asarray(image)
        return to_display(values)
    if image.mode in ("1", "L"):
        return np.asarray(image.convert("L"))
    if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
        black = Image.new("RGBA", image.size, (0, 0, 0, 255))
        return np.asarray(Image.alpha_composite(black, image.convert("RGBA")).convert("RGB"))
    return np.asarray(image.convert("RGB"))
