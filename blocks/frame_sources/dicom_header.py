"""The part of a DICOM file before its pixels: only the elements that decoding needs, never a patient's."""

import io
import logging
import re
import warnings
import zlib
from dataclasses import dataclass
from typing import Any, BinaryIO

from pydicom import config
from pydicom.dataset import Dataset
from pydicom.filereader import read_dataset
from pydicom.uid import UID

from tasks.algorithms.sniff import HEAD_BYTES, file_meta
from tasks.records.errors import BudgetExceeded, CorruptMedia, ScopeFlowError, UnsupportedMedia

_DEFLATED = "1.2.840.10008.1.2.1.99"
_MOST_INFLATED_BYTES = 1 << 30
_PIXEL_KEYWORDS = {0x7FE00008: "FloatPixelData", 0x7FE00009: "DoubleFloatPixelData", 0x7FE00010: "PixelData"}
_UNDEFINED_LENGTH = 0xFFFFFFFF

# PS3.3 image pixel, modality LUT, VOI LUT, palette and cine modules, and functional groups.
_TAGS: list[Any] = [
    0x00080016,  # SOPClassUID
    0x00082144,  # RecommendedDisplayFrameRate
    0x00180040,  # CineRate
    0x00181063,  # FrameTime
    0x00181065,  # FrameTimeVector
    *range(0x00280002, 0x00280012),
    0x00280034,  # PixelAspectRatio
    *range(0x00280100, 0x00280104),
    0x00280120,  # PixelPaddingValue
    *range(0x00281050, 0x00281057),
    *range(0x00281101, 0x00281104),
    *range(0x00281201, 0x00281204),
    *range(0x00281221, 0x00281224),
    0x00283000,  # ModalityLUTSequence
    0x00283010,  # VOILUTSequence
    0x52009229,  # SharedFunctionalGroupsSequence
    0x52009230,  # PerFrameFunctionalGroupsSequence
    0x7FE00001,  # ExtendedOffsetTable
    0x7FE00002,
]

logging.getLogger("pydicom").setLevel(logging.CRITICAL + 1)  # its messages quote elements of the file


@dataclass(frozen=True)
class DicomHeader:
    """Where the pixels of a DICOM file lie, and how they are to be read.

    Attributes:
        dataset: only the elements listed above.
        syntax: transfer syntax.
        stream: positioned anywhere; holds the inflated data set where the file is deflated.
        keyword: ``PixelData`` or one of its float kin.
        vr: of the pixel data element; None with implicit VR.
        start: of the value, in bytes from the start of ``stream``.
        end: of the value or of the stream, whichever comes first.
        is_complete: False when the stream ends before the value does.
    """

    dataset: Dataset
    syntax: UID
    stream: BinaryIO
    keyword: str
    vr: str | None
    start: int
    end: int
    is_complete: bool


def read_header(stream: BinaryIO) -> DicomHeader:
    """Read a DICOM file up to its pixel data.

    Args:
        stream: seekable, whose ``read(n)`` gives n bytes.

    Raises:
        CorruptMedia: no transfer syntax, a damaged header, or a picture described but cut off.
        UnsupportedMedia: an object without pixels (a report, a presentation state), or an unknown transfer syntax.
    """
    stream.seek(0)
    syntax_text, dataset_start = file_meta(stream.read(HEAD_BYTES))
    if syntax_text is None:
        raise CorruptMedia("is DICOM, but its file meta names no transfer syntax: export it again")
    syntax = UID(syntax_text, validation_mode=config.IGNORE)
    if not syntax.is_transfer_syntax:
        raise UnsupportedMedia(
            f"is DICOM in a compression that isn't supported (transfer syntax {_uid_name(syntax_text)})"
        )
    stream.seek(dataset_start)
    if syntax == _DEFLATED:
        stream = io.BytesIO(_inflate(stream))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            dataset = read_dataset(
                stream,
                is_implicit_VR=syntax.is_implicit_VR,
                is_little_endian=syntax.is_little_endian,
                stop_when=lambda tag, vr, length: int(tag) in _PIXEL_KEYWORDS,
                specific_tags=_TAGS,
            )
            header = _at_pixels(dataset, syntax, stream)
            _drop_damaged(dataset)
            return header
    except ScopeFlowError:
        raise
    except Exception as error:
        raise CorruptMedia("is DICOM with a damaged header") from error


def _at_pixels(dataset: Dataset, syntax: UID, stream: BinaryIO) -> DicomHeader:
    head = stream.read(8)
    if len(head) < 8:
        if "Rows" in dataset and "Columns" in dataset and "BitsAllocated" in dataset:
            raise CorruptMedia("describes a picture, but its pixel data is missing: the file is cut off")
        raise UnsupportedMedia(f"is DICOM without pixel data ({_uid_name(str(dataset.get('SOPClassUID', '')))})")
    order = "little" if syntax.is_little_endian else "big"
    tag = int.from_bytes(head[:2], order) << 16 | int.from_bytes(head[2:4], order)  # type: ignore[arg-type]
    vr = None
    if syntax.is_implicit_VR:
        length = int.from_bytes(head[4:8], order)  # type: ignore[arg-type]
    else:
        vr = head[4:6].decode("ascii", "replace")
        length = int.from_bytes(stream.read(4), order)  # type: ignore[arg-type]
    start = stream.tell()
    size = stream.seek(0, io.SEEK_END)
    is_bounded = length != _UNDEFINED_LENGTH
    end = min(start + length, size) if is_bounded else size
    return DicomHeader(
        dataset, syntax, stream, _PIXEL_KEYWORDS[tag], vr, start, end, not is_bounded or start + length <= size
    )


def _uid_name(text: str) -> str:
    """Return the name of a UID, or the UID; text that is none may be a patient's name and is never quoted."""
    return UID(text).name if re.fullmatch(r"[0-9.]{1,64}", text) else "unnamed"


def _drop_damaged(dataset: Dataset) -> None:
    """Parse every element now; those whose bytes make no sense count as absent, needed ones are then missed."""
    for tag in list(dataset.keys()):
        try:
            dataset[tag]
        except Exception:
            del dataset[tag]


def _inflate(stream: BinaryIO) -> bytes:
    """Return the inflated rest of the stream, stopping a decompression bomb at 1 GiB."""
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    parts: list[bytes] = []
    total = 0
    while block := stream.read(1 << 20):
        while block:
            try:
                part = inflater.decompress(block, 1 << 24)
            except zlib.error:
                raise CorruptMedia("is deflated DICOM whose compressed data is damaged") from None
            total += len(part)
            if total > _MOST_INFLATED_BYTES:
                raise BudgetExceeded("is deflated DICOM of more than 1 GiB; store it with another transfer syntax")
            parts.append(part)
            block = inflater.unconsumed_tail
    return b"".join(parts)


def frame_count(dataset: Dataset) -> int:
    """Return NumberOfFrames, 1 where it is absent or below 1; anything but a number raises ``CorruptMedia``."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            value = dataset.get("NumberOfFrames", 1)
            count = int(value) if value not in (None, "") else 1
        except (ValueError, TypeError):
            raise CorruptMedia("is DICOM whose NumberOfFrames is not a number") from None
    return max(1, count)


def frame_times_ns(dataset: Dataset, count: int, *, most: int | None = None) -> list[int] | None:
    """Return a time for each frame from FrameTimeVector, FrameTime or a display rate; None where there is none.

    PS3.3 C.7.6.5: FrameTimeVector holds the increments in ms, its first being 0.

    Args:
        dataset: of the image.
        count: frames that the header declares.
        most: how many times are wanted; headers declare thousands of millions.
    """
    if count < 2:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            vector = [float(step) for step in dataset.get("FrameTimeVector") or []]
            step_ms = float(dataset.get("FrameTime") or 0.0)
            rate = float(dataset.get("RecommendedDisplayFrameRate") or dataset.get("CineRate") or 0.0)
        except (ValueError, TypeError):
            return None
    if len(vector) == count and all(step >= 0 for step in vector) and any(vector):
        times, at_ms = [], 0.0
        for step in vector:
            at_ms += step
            times.append(round((at_ms - vector[0]) * 1e6))
        return times[:most]
    if step_ms <= 0 and rate > 0:
        step_ms = 1000.0 / rate
    wanted = count if most is None else min(count, most)
    return [round(index * step_ms * 1e6) for index in range(wanted)] if step_ms > 0 else None
