"""Stored DICOM values to what a viewer shows in 8 bits (PS3.3 C.11.1, C.11.2, C.7.6.3)."""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from pydicom.dataset import Dataset
from pydicom.pixels.processing import apply_color_lut, apply_modality_lut

from blocks.frame_source import ByteImage
from blocks.frame_sources.pixels import display_range, to_bytes


@dataclass(frozen=True)
class Grey:
    """How one frame's grey values are shown; None where the file does not say."""

    slope: float | None = None
    intercept: float | None = None
    center: float | None = None
    width: float | None = None
    function: str = "LINEAR"


class Display:
    """Turns decoded frames of one data set into 8 bits.

    Grey: modality LUT or rescale, then VOI LUT, else the first window, else bytes as they are and deeper values by the
    frame's own 0.5 and 99.5 percentiles (padding left out); MONOCHROME1 is inverted. Values of up to 16 bits go
    through one table of all stored values, which is kept while the settings stay. Colour deeper than 8 bits keeps its
    high bits.
    """

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset
        self._table_key: Any = None
        self._table: ByteImage | None = None

    def show(self, values: npt.NDArray[Any], photometric: str, index: int) -> ByteImage:
        """Return (H, W) or (H, W, 3) uint8.

        Args:
            values: (H, W) or (H, W, 3) as pydicom decodes one frame, YBR already turned to RGB.
            photometric: photometric interpretation of ``values``.
            index: of the frame, for its own functional group.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if values.ndim == 3:
                return self._colour(values)
            if photometric == "PALETTE COLOR":
                return self._palette(values)
            shown = self._grey(values, grey_settings(self._dataset, index))
            return ~shown if photometric == "MONOCHROME1" else shown

    def _colour(self, values: npt.NDArray[Any]) -> ByteImage:
        if values.dtype == np.uint8:
            return values[:, :, :3]
        bits = int(self._dataset.get("BitsStored") or values.dtype.itemsize * 8)
        if values.dtype.kind != "u":
            return to_bytes(values[:, :, :3], *display_range(values))
        return (values[:, :, :3] >> max(0, bits - 8)).astype(np.uint8)

    def _palette(self, values: npt.NDArray[Any]) -> ByteImage:
        if self._table is None:
            # The descriptor's third value says 16 for many tables that only hold 8 bits: go by what is in them.
            full = apply_color_lut(np.arange(1 << min(16, values.dtype.itemsize * 8), dtype=np.uint32), self._dataset)
            self._table = (full >> 8 if full.max() > 255 else full)[:, :3].astype(np.uint8)
        shown: ByteImage = self._table[np.minimum(values, len(self._table) - 1)]
        return shown

    def _grey(self, values: npt.NDArray[Any], grey: Grey) -> ByteImage:
        if values.dtype.kind == "f" or values.dtype.itemsize > 2:
            return self._map(values.astype(np.float32), values, grey)
        is_signed = values.dtype.kind == "i"
        domain = np.arange(1 << values.dtype.itemsize * 8, dtype=np.uint32).astype(np.uint16)
        if values.dtype.itemsize == 1:
            domain = domain.astype(np.uint8)
        domain = domain.view(values.dtype.newbyteorder("=")) if is_signed else domain
        needs_range = not self._has_fixed_range(grey, values)
        key = (grey, values.dtype.str, self._range_of(values) if needs_range else None)
        if key != self._table_key or self._table is None:
            self._table = self._map(domain, values, grey)
            self._table_key = key
        unsigned = values.view(np.uint8 if values.dtype.itemsize == 1 else np.dtype("u2").newbyteorder(_order(values)))
        shown: ByteImage = self._table[unsigned]
        return shown

    def _has_fixed_range(self, grey: Grey, values: npt.NDArray[Any]) -> bool:
        return "VOILUTSequence" in self._dataset or _has_window(grey) or self._is_plain_bytes(values)

    def _is_plain_bytes(self, values: npt.NDArray[Any]) -> bool:
        bits = int(self._dataset.get("BitsStored") or 8)
        return values.dtype.kind == "u" and bits <= 8 and "ModalityLUTSequence" not in self._dataset

    def _map(self, stored: npt.NDArray[Any], frame: npt.NDArray[Any], grey: Grey) -> ByteImage:
        """Return ``stored`` as shown; ``frame`` gives the range where the file names none."""
        values = self._modality(stored, grey)
        lut = _voi_lut(self._dataset)
        if lut is not None:
            first, table = lut
            places = np.clip(np.rint(values).astype(np.int64) - first, 0, len(table) - 1)
            return np.asarray(table[places], np.uint8)
        if _has_window(grey):
            return _window(values, grey)
        if self._is_plain_bytes(frame):
            bits = int(self._dataset.get("BitsStored") or 8)
            return to_bytes(stored, 0, (1 << bits) - 1)
        low, high = sorted(self._modality(np.array(self._range_of(frame)).astype(frame.dtype), grey).tolist())
        return to_bytes(values, low, high)

    def _modality(self, stored: npt.NDArray[Any], grey: Grey) -> npt.NDArray[Any]:
        if "ModalityLUTSequence" in self._dataset:
            return np.asarray(apply_modality_lut(stored, self._dataset))
        if grey.slope is None:
            return stored
        return stored * np.float32(grey.slope) + np.float32(grey.intercept or 0.0)

    def _range_of(self, frame: npt.NDArray[Any]) -> tuple[float, float]:
        padding = self._dataset.get("PixelPaddingValue")
        values = frame
        if isinstance(padding, int):
            kept = frame[frame != padding]
            values = kept if kept.size else frame
        return display_range(values)


def grey_settings(dataset: Dataset, index: int) -> Grey:
    """Return rescale and window of a frame: from its own functional group, the shared one, or the data set."""
    groups = [dataset]
    for sequence, at in (("SharedFunctionalGroupsSequence", 0), ("PerFrameFunctionalGroupsSequence", index)):
        items = dataset.get(sequence) or []
        if at < len(items):
            for name in ("PixelValueTransformationSequence", "FrameVOILUTSequence"):
                groups += list(items[at].get(name) or [])[:1]
    found = Grey()
    for group in groups:
        found = Grey(
            slope=_number(group.get("RescaleSlope"), found.slope),
            intercept=_number(group.get("RescaleIntercept"), found.intercept),
            center=_number(group.get("WindowCenter"), found.center),
            width=_number(group.get("WindowWidth"), found.width),
            function=str(group.get("VOILUTFunction") or found.function),
        )
    return found


def _number(value: Any, default: float | None) -> float | None:
    """Return the first number of a possibly multiple element."""
    if value is None or value == "":
        return default
    try:
        return float(value[0]) if hasattr(value, "__getitem__") and not isinstance(value, str) else float(value)
    except (ValueError, TypeError, IndexError):
        return default


def _has_window(grey: Grey) -> bool:
    return grey.center is not None and grey.width is not None and grey.width >= 1


def _window(values: npt.NDArray[Any], grey: Grey) -> ByteImage:
    """Return values through a window (PS3.3 C.11.2.1.2 and C.11.2.1.3)."""
    assert grey.center is not None
    assert grey.width is not None
    if grey.function == "SIGMOID":
        shaped = 1.0 / (1.0 + np.exp(np.clip(-4.0 * (values - grey.center) / grey.width, -50, 50)))
        return to_bytes(np.asarray(shaped), 0.0, 1.0)
    if grey.function == "LINEAR_EXACT" or grey.width <= 1:
        return to_bytes(values, grey.center - grey.width / 2, grey.center + grey.width / 2)
    half = (grey.width - 1) / 2
    return to_bytes(values, grey.center - 0.5 - half, grey.center - 0.5 + half)


def _voi_lut(dataset: Dataset) -> tuple[int, ByteImage] | None:
    """Return the first mapped value and the 8-bit table of the first VOI LUT, or None where there is none."""
    items = dataset.get("VOILUTSequence") or []
    if not items:
        return None
    descriptor, data = items[0].get("LUTDescriptor"), items[0].get("LUTData")
    if descriptor is None or data is None:
        return None
    if isinstance(data, bytes):
        data = np.frombuffer(data, np.uint8 if len(data) == (descriptor[0] or 65536) else "<u2")
    table = np.asarray(data, np.int64)
    first = int(descriptor[1])
    if first > 32767 and int(dataset.get("PixelRepresentation") or 0) == 1:
        first -= 65536
    return first, to_bytes(table, 0, max(1, int(table.max())))


def _order(values: npt.NDArray[Any]) -> Any:
    return values.dtype.byteorder if values.dtype.byteorder in "<>" else "="
