from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pytest

from tasks.algorithms.contact_sheet import REASON_RGB, contact_sheet
from tasks.records.keyframes import Keyframe, KeyframeReason
from tests import samples


def frames(count: int, *, height_px: int = 90, width_px: int = 160) -> Iterator[tuple[Keyframe, npt.NDArray[np.uint8]]]:
    for number in range(count):
        yield samples.keyframe(number % 10), np.full((height_px, width_px, 3), 40 + number, np.uint8)


def test_holds_every_thumbnail_in_order() -> None:
    sheet = contact_sheet(frames(6), columns=3, thumb_width_px=160)
    assert sheet.dtype == np.uint8
    assert sheet.ndim == 3
    greys = {int(value) for value in np.unique(sheet) if 40 <= value < 46}
    assert greys == set(range(40, 46))
    rows, columns = [], []
    for number in range(6):
        found = np.argwhere((sheet == 40 + number).all(axis=2))
        rows.append(int(found[:, 0].min()))
        columns.append(int(found[:, 1].min()))
    assert rows[0] == rows[1] == rows[2] < rows[3] == rows[4] == rows[5]
    assert columns[0] == columns[3] < columns[1] == columns[4] < columns[2] == columns[5]


def test_colours_tell_the_reason() -> None:
    sheet = contact_sheet(frames(3), columns=3, thumb_width_px=160)
    for reason in (KeyframeReason.FIRST, KeyframeReason.CHANGE, KeyframeReason.BURST):
        assert (sheet == np.array(REASON_RGB[reason], np.uint8)).all(axis=2).any()


def test_is_bounded_and_says_how_many_more() -> None:
    few = contact_sheet(frames(4), columns=4, thumb_width_px=80)
    many = contact_sheet(frames(200), columns=4, thumb_width_px=80, max_thumbs=4)
    assert many.shape[1] == few.shape[1]
    note = many.shape[0] - few.shape[0]
    assert 0 < note < 60


def test_reads_no_further_than_needed_when_the_number_is_known() -> None:
    taken = 0

    def counting() -> Iterator[tuple[Keyframe, npt.NDArray[np.uint8]]]:
        nonlocal taken
        for pair in frames(100):
            taken += 1
            yield pair

    contact_sheet(counting(), columns=4, thumb_width_px=80, max_thumbs=8, total=100)
    assert taken == 8


def test_keeps_no_full_picture() -> None:
    """Thumbnails are copies: the large array may go while the next is decoded."""
    import gc
    import weakref

    alive: list[weakref.ref[npt.NDArray[np.uint8]]] = []
    most = 0

    def watched() -> Iterator[tuple[Keyframe, npt.NDArray[np.uint8]]]:
        nonlocal most
        for number in range(8):
            gc.collect()
            most = max(most, sum(ref() is not None for ref in alive))
            picture = np.zeros((400, 640, 3), np.uint8)
            alive.append(weakref.ref(picture))
            yield samples.keyframe(number), picture
            del picture

    contact_sheet(watched(), columns=4, thumb_width_px=80)
    assert most <= 1


def test_mixed_shapes_are_fitted_not_stretched() -> None:
    wide = np.full((90, 160, 3), 200, np.uint8)
    tall = np.full((160, 40, 3), 201, np.uint8)
    sheet = contact_sheet([(samples.keyframe(0), wide), (samples.keyframe(1), tall)], columns=2, thumb_width_px=160)
    found = np.argwhere((sheet == 201).all(axis=2))
    height, width = np.ptp(found, axis=0) + 1
    assert (height, width) == (90, 22)


def test_refuses_what_it_cannot_show() -> None:
    with pytest.raises(ValueError, match="at least one keyframe"):
        contact_sheet([], columns=4, thumb_width_px=80)
    with pytest.raises(ValueError, match="uint8"):
        contact_sheet([(samples.keyframe(0), np.zeros((9, 16), np.uint8))], columns=4, thumb_width_px=80)
    with pytest.raises(ValueError, match="nothing to lay out"):
        contact_sheet(frames(1), columns=0, thumb_width_px=80)
