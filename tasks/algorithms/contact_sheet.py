"""One picture of a whole medium: its keyframes as thumbnails with time, reason and number."""

from collections.abc import Iterable

import cv2
import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

from tasks.algorithms.wording import REASON_WORDS, counted, frame_label
from tasks.records.keyframes import Keyframe, KeyframeReason

RgbImage = npt.NDArray[np.uint8]
Colour = tuple[int, int, int]
Font = ImageFont.ImageFont | ImageFont.FreeTypeFont

REASON_RGB: dict[KeyframeReason, Colour] = {
    KeyframeReason.FIRST: (100, 116, 139),
    KeyframeReason.CHANGE: (37, 99, 235),
    KeyframeReason.BURST: (217, 100, 20),
    KeyframeReason.MAX_GAP: (13, 148, 136),
    KeyframeReason.STILL: (124, 58, 237),
}

_PAPER: Colour = (250, 250, 248)
_INK: Colour = (28, 32, 40)
_SOFT_INK: Colour = (96, 104, 117)
_MAT: Colour = (18, 20, 24)
_TALLEST = 4.0 / 3.0


def contact_sheet(
    frames: Iterable[tuple[Keyframe, RgbImage]],
    *,
    columns: int = 4,
    thumb_width_px: int = 320,
    max_thumbs: int = 64,
    total: int | None = None,
) -> RgbImage:
    """Lay keyframes out on one sheet, each with its time (or frame number), reason and running number.

    Frames are taken one at a time and only their thumbnails are kept. The first frame's shape sets the shape of
    every thumbnail (at most 4:3 upright); others are fitted into it on a dark mat.

    Args:
        frames: keyframes with their pictures, (H, W, 3) uint8 each.
        columns: thumbnails a row; a sheet with fewer thumbnails is narrower.
        thumb_width_px: width of a thumbnail.
        max_thumbs: thumbnails on the sheet at most; a note says how many more there are.
        total: number of keyframes. When given, ``frames`` is not read beyond ``max_thumbs``; otherwise it is read to
            its end to count.

    Returns:
        (H, W, 3) uint8 RGB.

    Raises:
        ValueError: no frames, or a picture that is not (H, W, 3) uint8.
    """
    if columns < 1 or thumb_width_px < 32 or max_thumbs < 1:
        raise ValueError(f"nothing to lay out: {columns = }, {thumb_width_px = }, {max_thumbs = }")
    thumbs: list[tuple[Keyframe, RgbImage]] = []
    height_px = 0
    seen = 0
    for keyframe, rgb in frames:
        seen += 1
        if len(thumbs) < max_thumbs:
            if rgb.ndim != 3 or rgb.shape[2] != 3 or rgb.dtype != np.uint8:
                raise ValueError(f"picture must be (H, W, 3) uint8, got {rgb.shape = }, {rgb.dtype = }")
            if not height_px:
                height_px = max(16, round(thumb_width_px * min(rgb.shape[0] / rgb.shape[1], _TALLEST)))
            thumbs.append((keyframe, _fit(rgb, thumb_width_px, height_px)))
        if total is not None and len(thumbs) == min(max_thumbs, total):
            break
    if not thumbs:
        raise ValueError("a contact sheet needs at least one keyframe")
    return _lay_out(thumbs, columns=min(columns, len(thumbs)), more=max(seen, total or 0) - len(thumbs))


def _fit(rgb: RgbImage, width_px: int, height_px: int) -> RgbImage:
    scale = min(width_px / rgb.shape[1], height_px / rgb.shape[0])
    width, height = max(1, round(rgb.shape[1] * scale)), max(1, round(rgb.shape[0] * scale))
    small = cv2.resize(rgb, (width, height), interpolation=cv2.INTER_AREA if scale < 1 else cv2.INTER_CUBIC)
    mat = np.full((height_px, width_px, 3), _MAT, np.uint8)
    top, left = (height_px - height) // 2, (width_px - width) // 2
    mat[top : top + height, left : left + width] = small
    return mat


def _lay_out(thumbs: list[tuple[Keyframe, RgbImage]], *, columns: int, more: int) -> RgbImage:
    height_px, width_px = thumbs[0][1].shape[:2]
    size = max(11, round(width_px / 16))
    strong, soft = ImageFont.load_default(size + 1), ImageFont.load_default(size)
    pad, margin = max(6, width_px // 24), max(12, width_px // 14)
    caption_px = round(size * 2.9)
    rows = -(-len(thumbs) // columns)
    note_px = size * 2 if more else 0
    sheet = Image.new(
        "RGB",
        (
            2 * margin + columns * width_px + (columns - 1) * pad,
            2 * margin + rows * (height_px + caption_px) + (rows - 1) * pad + note_px,
        ),
        _PAPER,
    )
    draw = ImageDraw.Draw(sheet)
    for number, (keyframe, thumb) in enumerate(thumbs):
        row, column = divmod(number, columns)
        left, top = margin + column * (width_px + pad), margin + row * (height_px + caption_px + pad)
        sheet.paste(Image.fromarray(thumb), (left, top))
        below = top + height_px
        draw.rectangle((left, below, left + width_px - 1, below + 2), fill=REASON_RGB[keyframe.reason])
        line = below + 2 + size // 3
        draw.text((left, line), frame_label(keyframe), font=strong, fill=_INK)
        _text_right(draw, (left + width_px, line), f"{number + 1}", soft, _SOFT_INK)
        reason = _shortened(draw, REASON_WORDS[keyframe.reason], soft, width_px)
        draw.text((left, line + round(size * 1.2)), reason, font=soft, fill=_SOFT_INK)
    if more:
        note = _shortened(draw, f"… and {counted(more, 'more keyframe')}", soft, sheet.width - 2 * margin)
        draw.text((margin, sheet.height - margin - size), note, font=soft, fill=_SOFT_INK)
    return np.asarray(sheet, dtype=np.uint8)


def _text_right(draw: ImageDraw.ImageDraw, corner: tuple[int, int], text: str, font: Font, fill: Colour) -> None:
    draw.text((corner[0] - draw.textlength(text, font=font), corner[1]), text, font=font, fill=fill)


def _shortened(draw: ImageDraw.ImageDraw, text: str, font: Font, width_px: int) -> str:
    if draw.textlength(text, font=font) <= width_px:
        return text
    while text and draw.textlength(text + "…", font=font) > width_px:
        text = text[:-1]
    return text.rstrip() + "…"
