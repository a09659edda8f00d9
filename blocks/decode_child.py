"""What runs inside the decode child: probe, decode and extract, from one pinned object. JSON in, JSON out.

Each opens the object by itself, tells its kind from its bytes unless the request names it, and holds it to the limits
of the request's ``DecodeSpec``. Foreign errors stay inside the sources; what leaves here is a ``ScopeFlowError``.
"""

import contextlib
import gc
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cv2
from PIL import Image

from blocks.access import ObjectStat, config_from
from blocks.frame_source import FrameSource, FrameTarget, Limits, open_source
from blocks.signals_writer import SignalsWriter
from tasks.algorithms.pictures import WEBP_MAX_SIDE_PX, thumbnail
from tasks.algorithms.signals import SignalRow, SignalScorer
from tasks.algorithms.sniff import HEAD_BYTES, sniff_kind
from tasks.records.media import MediaKind
from tasks.records.specs import DecodeSpec

Json = dict[str, Any]
Emit = Callable[[Json], None]

_REPORT_EVERY_S = 1.0
_WEBP_QUALITY = 90
_MOST_LOSSLESS_PIXELS = 16_000_000

cv2.setNumThreads(1)


def probe(request: Json, emit: Emit) -> Json:
    """Return the kind of a medium and what its header says.

    Args:
        request: {access, stat, decode, kind (optional)} as JSON.
        emit: not called.

    Returns:
        {"kind": ..., "probe": MediaProbe as JSON}.
    """
    with _opened(request) as (source, kind, _):
        return {"kind": kind.value, "probe": source.probe().model_dump(mode="json")}


def decode(request: Json, emit: Emit) -> Json:
    """Decode a medium once and write its signals table.

    Args:
        request: as for ``probe``, and ``table_path``, a local file to write.
        emit: told of progress at most once a second.

    Returns:
        The fields of ``SignalsRef`` but ``uri`` and ``peak_rss_bytes``, as JSON.
    """
    started = time.monotonic()
    with _opened(request) as (source, _, spec), SignalsWriter(Path(request["table_path"])) as table:
        scorer = SignalScorer(spec.analysis_width_px, spec.quiet_stride)
        report = _Reporter(emit, "decode", source.frames_declared)
        corrupt = scored = 0
        first_ns: int | None = None
        last_ns = 0
        for frame in source.frames():
            if frame.is_corrupt:
                row = SignalRow(frame.frame_index, frame.pts_ns, is_corrupt=True)
            elif scorer.wants(frame.frame_index, frame.pts_ns):
                row = scorer.score(frame.frame_index, frame.pts_ns, frame.luma)
            else:
                row = SignalRow(frame.frame_index, frame.pts_ns)
            table.append(row)
            corrupt += row.is_corrupt
            scored += row.scored
            if row.pts_ns != -1:
                first_ns = row.pts_ns if first_ns is None else first_ns
                last_ns = row.pts_ns
            report(table.rows)
        report(table.rows, is_last=True)
        return {
            "frames_declared": source.frames_declared,
            "frames_delivered": table.rows,
            "frames_corrupt": corrupt,
            "frames_scored": scored,
            "duration_ns": _duration_ns(first_ns, last_ns, table.rows),
            "gaps": [gap.model_dump(mode="json") for gap in source.gaps],
            "warnings": list(source.warnings),
            "decode_seconds": time.monotonic() - started,
            "decoder": source.decoder,
        }


def extract(request: Json, emit: Emit) -> Json:
    """Write chosen frames as WebP files: upright, square pixels, full resolution.

    Frames of video are written at quality 90, since they were compressed with loss before; stills of up to 16
    megapixels without loss. A side longer than WebP can hold (16,383 px) is scaled down.

    Args:
        request: as for ``probe``, and ``keyframes`` ([{frame_index, pts_ns}]), ``out_dir``, a local folder, and
            ``max_side_px``, the longest side to write (optional).
        emit: told of progress at most once a second.

    Returns:
        {"pictures": [{frame_index, path, width_px, height_px}]} in the order of ``frame_index``.
    """
    folder = Path(request["out_dir"])
    longest_px = min(request.get("max_side_px") or WEBP_MAX_SIDE_PX, WEBP_MAX_SIDE_PX)
    targets = sorted(
        {(item["frame_index"], item.get("pts_ns")) for item in request["keyframes"]}, key=lambda target: target[0]
    )
    pictures: list[Json] = []
    with _opened(request) as (source, kind, _):
        report = _Reporter(emit, "extract-keyframes", len(targets))
        is_video = kind in (MediaKind.VIDEO, MediaKind.DICOM_VIDEO)
        for frame_index, pixels in source.extract([FrameTarget(*target) for target in targets]):
            pixels = thumbnail(pixels, longest_px)
            height, width = pixels.shape[:2]
            path = folder / f"{frame_index:06d}.webp"
            lossless = not is_video and width * height <= _MOST_LOSSLESS_PIXELS
            Image.fromarray(pixels).save(
                path, "WEBP", lossless=lossless, quality=0 if lossless else _WEBP_QUALITY, method=2
            )
            pictures.append({"frame_index": frame_index, "path": str(path), "width_px": width, "height_px": height})
            # PyAV's converted frames stand in reference cycles; until Python collects by itself, they pile up.
            del pixels
            gc.collect()
            report(len(pictures))
        report(len(pictures), is_last=True)
    return {"pictures": pictures}


@contextlib.contextmanager
def _opened(request: Json) -> Iterator[tuple[FrameSource, MediaKind, DecodeSpec]]:
    """Open the request's medium; its errors follow the name that the caller knows it by, so they begin without one."""
    from blocks.access_open import open_access

    spec = DecodeSpec.model_validate(request["decode"])
    stat = ObjectStat.model_validate(request["stat"])
    limits = Limits.of(spec)
    access = open_access(config_from(request["access"]))
    with access.open_pinned(stat) as stream:
        kind = MediaKind(request["kind"]) if request.get("kind") else _sniff(stream, stat.size_bytes)
        source = open_source(kind, stream, limits)
        try:
            yield source, kind, spec
        finally:
            source.close()


def _sniff(stream: Any, size_bytes: int) -> MediaKind:
    head = bytearray()
    while len(head) < HEAD_BYTES and (block := stream.read(HEAD_BYTES - len(head))):
        head += block
    stream.seek(0)
    return sniff_kind(bytes(head), size_bytes)


def _duration_ns(first_ns: int | None, last_ns: int, frames: int) -> int | None:
    """Return the time from the first frame to the end of the last, taken to last as long as the mean frame."""
    if first_ns is None:
        return None
    shown = max(0, last_ns - first_ns)
    return shown + (round(shown / (frames - 1)) if frames > 1 else 0)


class _Reporter:
    """Emits progress at most once a second, and always at the end."""

    def __init__(self, emit: Emit, stage: str, total: int | None) -> None:
        self._emit = emit
        self._stage = stage
        self._total = total
        self._next = time.monotonic() + _REPORT_EVERY_S

    def __call__(self, done: int, *, is_last: bool = False) -> None:
        now = time.monotonic()
        if is_last or now >= self._next:
            self._next = now + _REPORT_EVERY_S
            self._emit({"stage": self._stage, "done": done, "total": self._total, "unit": "frames"})
