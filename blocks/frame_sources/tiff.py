"""TIFF and BigTIFF through tifffile, page by page."""

import contextlib
import io
import logging
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import tifffile

from blocks.frame_source import NO_TIME, ByteImage, DecodedFrame, FrameLog, FrameTarget, Limits
from blocks.frame_sources.pixels import checked, orient, square_pixels, to_display, to_luma, to_rgb
from tasks.records.errors import CorruptMedia, ScopeFlowError
from tasks.records.media import MediaProbe

_MINISWHITE, _RGB, _PALETTE, _SEPARATED, _YCBCR = 0, 2, 3, 5, 6

logging.getLogger("tifffile").setLevel(logging.CRITICAL + 1)


class TiffSource:
    """Pages of a TIFF, upright; each is shown by itself, since pages may differ in size and depth.

    Bytes are shown as they are; deeper and floating values by the page's own 0.5 and 99.5 percentiles; an alpha
    channel is left out. Pages have no times.

    Args:
        stream: seekable, whose ``read(n)`` gives n bytes.
        limits: frames, pixels and time.
    """

    def __init__(self, stream: BinaryIO, limits: Limits) -> None:
        self._limits = limits
        self._log = FrameLog()
        self.gaps, self.warnings = self._log.gaps, self._log.warnings
        self._stream = stream
        stream.seek(0)
        try:
            self._file = tifffile.TiffFile(stream)
            self._probe = _probe(self._file)
        except ScopeFlowError:
            raise
        except Exception as error:
            raise CorruptMedia("is TIFF with a damaged header: its first page can't be found") from error
        self.decoder = f"tifffile {tifffile.__version__}"
        self.frames_declared: int | None = None

    def probe(self) -> MediaProbe:
        """Return what the first page's header says; pages are not counted before they are read."""
        return self._probe

    def frames(self) -> Iterator[DecodedFrame]:
        """Yield every page; pages whose directory was seen before end the walk."""
        for index, page in self._pages():
            self._limits.check_frames(index + 1)
            shown = self._shown_or_none(page)
            self._log.note_frame(NO_TIME, shown is None)
            picture = np.zeros((8, 8), np.uint8) if shown is None else shown
            yield DecodedFrame(index, NO_TIME, shown is None, lambda image=picture: to_luma(image))  # type: ignore[misc]
        self._log.finish("at least one page")

    def extract(self, targets: Sequence[FrameTarget]) -> Iterator[tuple[int, ByteImage]]:
        """Yield the targets' pages; each is decoded by itself."""
        wanted = {target.frame_index for target in targets}
        for index, page in self._pages():
            if index in wanted:
                self._limits.check_frames(0)
                shown = self._shown_or_none(page)
                if shown is None:
                    break
                yield index, square_pixels(to_rgb(shown), _sample_aspect(page))
                wanted.remove(index)
            if not wanted:
                return
        raise CorruptMedia(f"page {min(wanted)} can't be decoded again")

    def close(self) -> None:
        """Free the page list."""
        with contextlib.suppress(Exception):
            self._file.close()

    def _pages(self) -> Iterator[tuple[int, Any]]:
        """Yield (index, page), reading one directory after the other; a loop or a damaged directory ends it."""
        seen: set[int] = set()
        index = 0
        while True:
            try:
                page = self._file.pages[index]
            except IndexError:
                if index and self._names_another(page.offset):
                    self._log.cut_off(f"the file is cut off or damaged after {index} pages")
                return
            except ScopeFlowError:
                raise
            except Exception:
                self._log.cut_off(f"the file is cut off or damaged after {index} pages")
                return
            if page.offset in seen:
                return
            seen.add(page.offset)
            yield index, page
            index += 1

    def _names_another(self, offset: int) -> bool:
        """Tell whether the directory at ``offset`` names a next one, which tifffile could not find."""
        form = self._file.tiff
        order = "little" if self._file.byteorder == "<" else "big"
        self._stream.seek(offset)
        tags = int.from_bytes(self._stream.read(form.tagnosize), order)  # type: ignore[arg-type]
        self._stream.seek(tags * form.tagsize, io.SEEK_CUR)
        return any(self._stream.read(form.offsetsize))

    def _shown_or_none(self, page: Any) -> ByteImage | None:
        """Return a page in 8 bits, upright, or None when it is damaged; a stream's own errors come through."""
        try:
            samples = max(1, int(page.samplesperpixel)) * max(1, int(page.imagedepth))
            self._limits.check_pixels(int(page.imagewidth), int(page.imagelength) * max(1, samples // 4))
            return orient(checked(_shown(page)), _orientation(page))
        except ScopeFlowError:
            raise
        except Exception:
            return None


def _probe(file: Any) -> MediaProbe:
    page = file.pages[0]
    return MediaProbe(
        container="BigTIFF" if file.is_bigtiff else "TIFF",
        codec=_name(page.compression),
        width_px=int(page.imagewidth),
        height_px=int(page.imagelength),
        bits_stored=int(np.max(page.bitspersample)),
        photometric_interpretation=_name(page.photometric),
    )


def _shown(page: Any) -> ByteImage:
    values = _rows_first(page.asarray(maxworkers=2), page.axes)
    photometric = int(page.photometric)
    if photometric == _PALETTE and page.colormap is not None and values.ndim == 2:
        colours = (np.asarray(page.colormap).T >> 8).astype(np.uint8)
        return colours[np.minimum(values.astype(np.int64), len(colours) - 1)]
    if photometric == _SEPARATED and values.ndim == 3 and values.shape[2] >= 4:
        inks = to_display(values[:, :, :4]).astype(np.uint16)
        return ((255 - inks[:, :, :3]) * (255 - inks[:, :, 3:]) // 255).astype(np.uint8)
    if values.ndim == 3 and photometric in (_RGB, _YCBCR) and values.shape[2] >= 3:
        return to_display(values[:, :, :3])
    if values.ndim == 3:
        values = values[:, :, 0]
    shown = to_display(values)
    return ~shown if photometric == _MINISWHITE else shown


def _rows_first(values: npt.NDArray[Any], axes: str) -> npt.NDArray[Any]:
    """Return (H, W) or (H, W, S); of further axes, such as depth, the first plane."""
    for axis in [axis for axis in axes if axis not in "YXS"]:
        at = axes.index(axis)
        values, axes = values.take(0, axis=at), axes[:at] + axes[at + 1 :]
    if "S" in axes and axes.index("S") == 0:
        values = np.moveaxis(values, 0, -1)
    return values


def _orientation(page: Any) -> int:
    tag = page.tags.get("Orientation")
    return int(tag.value) if tag is not None else 1


def _sample_aspect(page: Any) -> tuple[float, float]:
    """Return width and height of a pixel from the resolution tags (fax pages are 204 x 98 dots an inch)."""
    across, down = page.tags.get("XResolution"), page.tags.get("YResolution")
    try:
        dots_across, dots_down = (tag.value[0] / tag.value[1] for tag in (across, down))
        ratio = dots_down / dots_across
    except (AttributeError, TypeError, ZeroDivisionError, IndexError):
        return 1.0, 1.0
    if not 0.25 <= ratio <= 4 or abs(ratio - 1) < 0.01:
        return 1.0, 1.0
    return (1.0, 1.0 / ratio) if _orientation(page) < 5 else (1.0 / ratio, 1.0)


def _name(value: Any) -> str:
    return str(getattr(value, "name", value))
