"""What the DICOM, TIFF and picture sources must get right: display values, orientation, damage."""

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.filewriter import dcmwrite

from blocks.frame_source import FrameTarget
from blocks.frame_sources.dicom_header import read_header
from tasks.records.errors import BudgetExceeded, CorruptMedia, UnsupportedMedia
from tasks.records.signals import Gap
from tests.blocks.media_makers import (
    animation_bytes,
    dicom_bytes,
    image_bytes,
    number_in,
    numbered,
    tiff_bytes,
    video_bytes,
)
from tests.blocks.media_opening import GREY, RGB, decoded, opened, target_of


def first_rgb(data: bytes, index: int = 0) -> Any:
    (_, picture), *_ = opened(data).extract([FrameTarget(index)])
    return picture


def test_frame_times() -> None:
    assert [f.pts_ns for f in decoded(dicom_bytes(GREY[:3], FrameTime="40"))] == [0, 40_000_000, 80_000_000]
    assert [f.pts_ns for f in decoded(dicom_bytes(GREY[:3], CineRate="50"))] == [0, 20_000_000, 40_000_000]
    vector = dicom_bytes(GREY[:3], FrameTimeVector=["0", "10", "35"])
    assert [f.pts_ns for f in decoded(vector)] == [0, 10_000_000, 45_000_000]
    assert [f.pts_ns for f in decoded(dicom_bytes(GREY[:3]))] == [-1, -1, -1]


def test_monochrome1_is_inverted() -> None:
    assert np.array_equal(first_rgb(dicom_bytes(GREY[:1], photometric="MONOCHROME1"))[:, :, 0], 255 - GREY[0])


def test_window_rescale_and_sign() -> None:
    stored = np.array([[[-1000, 0, 400, 3000]] * 2], np.int16)
    shown = first_rgb(
        dicom_bytes(stored, RescaleSlope="1", RescaleIntercept="0", WindowCenter="200", WindowWidth="400")
    )[0, :, 0]
    assert shown.tolist() == [0, 0, 255, 255]
    shifted = first_rgb(
        dicom_bytes(stored, RescaleSlope="2", RescaleIntercept="-400", WindowCenter="0", WindowWidth="1000")
    )[0, :, 0]
    assert shifted[0] == 0
    assert abs(int(shifted[1]) - 26) <= 1
    assert abs(int(shifted[2]) - 230) <= 1


def test_sixteen_bits_without_a_window_use_their_own_range() -> None:
    ramp = np.linspace(1000, 1200, 64 * 48).reshape(1, 48, 64).astype(np.uint16)
    shown = first_rgb(dicom_bytes(ramp, bits_stored=12))
    assert (shown.min(), shown.max()) == (0, 255)
    assert abs(float(shown.mean()) - 127) < 3


def test_voi_table_and_modality_table() -> None:
    table = Dataset()
    table.LUTDescriptor, table.LUTData = [256, 0, 8], list(range(255, -1, -1))
    table["LUTDescriptor"].VR = table["LUTData"].VR = "US"
    stored = np.arange(256, dtype=np.uint16).reshape(1, 16, 16)
    assert first_rgb(dicom_bytes(stored, bits_stored=8, VOILUTSequence=[table]))[:, :, 0].ravel().tolist() == list(
        range(255, -1, -1)
    )


def test_palette() -> None:
    data = dicom_bytes(
        np.array([[[0, 1], [2, 3]]], np.uint8),
        photometric="PALETTE COLOR",
        RedPaletteColorLookupTableDescriptor=[4, 0, 16],
        GreenPaletteColorLookupTableDescriptor=[4, 0, 16],
        BluePaletteColorLookupTableDescriptor=[4, 0, 16],
        RedPaletteColorLookupTableData=np.array([0, 65535, 0, 0], "<u2").tobytes(),
        GreenPaletteColorLookupTableData=np.array([0, 0, 65535, 0], "<u2").tobytes(),
        BluePaletteColorLookupTableData=np.array([0, 0, 0, 65535], "<u2").tobytes(),
    )
    assert first_rgb(data).tolist() == [[[0, 0, 0], [255, 0, 0]], [[0, 255, 0], [0, 0, 255]]]


def test_deep_colour_keeps_its_high_bits() -> None:
    deep = RGB[:2].astype(np.uint16) * 257
    assert np.array_equal(first_rgb(dicom_bytes(deep, photometric="RGB"), 1), RGB[1])


def test_pixel_aspect_of_dicom() -> None:
    assert first_rgb(dicom_bytes(GREY[:1], PixelAspectRatio=["2", "1"])).shape == (96, 64, 3)


def test_cut_native_frames_are_counted() -> None:
    data = dicom_bytes(GREY)
    source = opened(data[: -3 * GREY[0].nbytes - 5])
    assert len(list(source.frames())) == 8
    assert "cut off: 8 of 12 frames" in source.warnings[0]
    assert source.gaps == [Gap(start_frame=8, end_frame=11, cause="the file is cut off")]
    timed = opened(dicom_bytes(GREY, FrameTime="40")[: -3 * GREY[0].nbytes - 5])
    assert len(list(timed.frames())) == 8
    assert timed.gaps == [Gap(start_ns=280_000_000, end_ns=440_000_000, cause="the file is cut off")]
    one = dicom_bytes(GREY[:1])
    with pytest.raises(CorruptMedia, match="its pixel data is cut off"):
        opened(one[:-10])


def test_damaged_encapsulated_frame_is_one_gap() -> None:
    data = bytearray(dicom_bytes(GREY, rle=True, FrameTime="40"))
    fifth, sixth = [at for at in range(len(data)) if data[at : at + 4] == b"\xfe\xff\x00\xe0"][5:7]
    data[fifth + 8 : sixth] = bytes(sixth - fifth - 8)
    source = opened(bytes(data))
    frames = list(source.frames())
    assert [frame.frame_index for frame in frames if frame.is_corrupt] == [4]
    assert [(gap.start_ns, gap.end_ns) for gap in source.gaps] == [(120_000_000, 200_000_000)]


def test_panicking_decoder_is_a_damaged_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    class Panic(BaseException):
        pass

    source = opened(dicom_bytes(GREY[:3]))
    show = source._display.show  # type: ignore[attr-defined]

    def panics(values: Any, photometric: str, index: int) -> Any:
        if index == 1:
            raise Panic("index out of bounds")
        return show(values, photometric, index)

    monkeypatch.setattr(source._display, "show", panics)  # type: ignore[attr-defined]
    assert [frame.is_corrupt for frame in source.frames()] == [False, True, False]


def test_dicom_without_pixels_is_named() -> None:
    report = Dataset()
    report.SOPClassUID, report.SOPInstanceUID = "1.2.840.10008.5.1.4.1.1.88.11", "1.2.3"
    report.file_meta = FileMetaDataset()
    report.file_meta.TransferSyntaxUID = "1.2.840.10008.1.2.1"
    out = io.BytesIO()
    dcmwrite(out, report, enforce_file_format=True)
    with pytest.raises(UnsupportedMedia, match=r"without pixel data \(Basic Text SR Storage\)"):
        opened(out.getvalue())


def test_sop_class_that_is_no_uid_is_not_quoted() -> None:
    report = Dataset()
    report.SOPClassUID, report.SOPInstanceUID = "1.2.840.10008.5.1.4.1.1.88.11", "1.2.3"
    report.file_meta = FileMetaDataset()
    report.file_meta.TransferSyntaxUID = "1.2.840.10008.1.2.1"
    out = io.BytesIO()
    dcmwrite(out, report, enforce_file_format=True)
    at = out.getvalue().rindex(b"1.2.840.10008.5.1.4.1.1.88.11")
    data = bytearray(out.getvalue())
    data[at : at + 29] = b"DOE^JOHN".ljust(29, b"\0")
    with pytest.raises(UnsupportedMedia, match=r"without pixel data \(unnamed\)"):
        opened(bytes(data))


@pytest.mark.parametrize(("stated", "count"), [("-3", 1), ("0", 1), ("12", 12)])
def test_number_of_frames(stated: str, count: int) -> None:
    assert len(decoded(dicom_bytes(GREY, NumberOfFrames=stated))) == count


def test_no_patient_in_what_a_source_keeps() -> None:
    header = read_header(io.BytesIO(dicom_bytes(GREY)))
    assert "PatientName" not in header.dataset
    assert "Mustermann" not in str(header)


def test_video_dicom_tolerates_a_pad_byte_and_keeps_times() -> None:
    stream = video_bytes(12)
    stream += b"" if len(stream) % 2 else b"\0"
    data = dicom_bytes(GREY, syntax="1.2.840.10008.1.2.4.102", bitstream=stream[: len(stream) | 1])
    frames = decoded(data)
    assert [frame.pts_ns for frame in frames] == [index * 40_000_000 for index in range(12)]


def test_cut_video_dicom_has_a_gap_at_its_end() -> None:
    stream = video_bytes(12, container="mpegts", noise=20.0)
    data = dicom_bytes(GREY, syntax="1.2.840.10008.1.2.4.102", bitstream=stream, fragment_bytes=4096)
    whole, cut = opened(data), opened(data[: len(data) * 7 // 10])
    assert len(list(whole.frames())) == 12
    assert whole.gaps == []
    assert 6 <= len(list(cut.frames())) < 12
    assert cut.gaps[-1].cause == "the file is cut off"


def test_bare_bitstream_in_dicom_takes_times_from_the_header() -> None:
    data = dicom_bytes(
        GREY, syntax="1.2.840.10008.1.2.4.102", bitstream=video_bytes(12, container="h264"), FrameTime="50"
    )
    frames = decoded(data)
    assert len(frames) == 12
    assert [number_in(frame.luma) for frame in frames] == list(range(12))
    assert frames[3].pts_ns == 150_000_000
    pictures = dict(opened(data).extract([target_of(frames[7])]))
    assert number_in(pictures[7]) == 7


# -- TIFF and pictures ------------------------------------------------------------------------------------------


def test_tiff_pages_of_unequal_size_and_depth() -> None:
    deep = (GREY[1].astype(np.uint16)) * 16 + 500
    pages = [GREY[0], deep, numbered(2, 128, 96)[:, :, 0], (GREY[3] > 127)]
    frames = decoded(tiff_bytes(pages, photometric="minisblack"))
    assert [frame.luma.shape for frame in frames] == [(48, 64), (48, 64), (96, 128), (48, 64)]
    assert [number_in(frame.luma) for frame in frames] == [0, 1, 2, 3]


def test_tiff_float_planar_tiled_and_inverted() -> None:
    floats = GREY[5].astype(np.float32) / 100 - 3
    floats[47, 0] = np.nan
    assert number_in(decoded(tiff_bytes([floats], photometric="minisblack"))[0].luma) == 5
    inverted = tiff_bytes([255 - GREY[6]], photometric="miniswhite")
    assert np.array_equal(decoded(inverted)[0].luma, GREY[6])
    planar = tiff_bytes([np.moveaxis(RGB[7], -1, 0)], photometric="rgb", planarconfig="separate", tile=(16, 16))
    assert np.array_equal(first_rgb(planar), RGB[7])


def test_tiff_orientation() -> None:
    stored = np.rot90(GREY[9])  # orientation 6: shown after a quarter turn clockwise
    data = tiff_bytes([stored], photometric="minisblack", extratags=[(274, 3, 1, 6, True)])
    assert np.array_equal(first_rgb(data)[:, :, 0], GREY[9])


def test_tiff_directory_loop_ends() -> None:
    data = bytearray(tiff_bytes(GREY[:3], photometric="minisblack"))
    first = int.from_bytes(data[4:8], "little")
    at, offsets = first, []
    while at:
        count = int.from_bytes(data[at : at + 2], "little")
        offsets.append(at + 2 + 12 * count)
        at = int.from_bytes(data[offsets[-1] : offsets[-1] + 4], "little")
    data[offsets[-1] : offsets[-1] + 4] = first.to_bytes(4, "little")
    assert len(decoded(bytes(data))) == 3


def test_damaged_page_is_named_by_its_number() -> None:
    data = bytearray(tiff_bytes(GREY[:5], photometric="minisblack", compression="zlib"))
    at = bytes(data).find(b"\x78", len(data) // 2)
    source = opened(bytes(data[: at + 4] + bytes(16) + data[at + 20 :]))
    damaged = [frame.frame_index for frame in source.frames() if frame.is_corrupt]
    assert len(damaged) == 1
    assert source.gaps == [Gap(start_frame=damaged[0], end_frame=damaged[0], cause="damaged frames")]


@pytest.mark.parametrize("share", [0.3, 0.5, 0.85])
def test_cut_tiff_has_a_gap_even_where_only_whole_pages_are_left(share: float) -> None:
    data = tiff_bytes(GREY, photometric="minisblack")
    source = opened(data[: round(len(data) * share)])
    assert len(list(source.frames())) < 12
    assert source.gaps[-1].cause == "the file is cut off"
    out = io.BytesIO()
    pages = [Image.fromarray(page) for page in GREY]
    pages[0].save(out, "TIFF", save_all=True, append_images=pages[1:])
    source = opened(out.getvalue()[: 6 * len(out.getvalue()) // 12])  # where a directory should begin
    assert len(list(source.frames())) == 6
    assert source.gaps == [Gap(start_frame=6, end_frame=6, cause="the file is cut off")]


@pytest.mark.parametrize("form", ["GIF", "PNG"])
def test_cut_animation_has_a_gap(form: str) -> None:
    pictures = list(np.random.default_rng(0).integers(0, 255, (10, 48, 64, 3), np.uint8))
    data = animation_bytes(pictures, form)
    source = opened(data[: len(data) // 2])
    assert len(list(source.frames())) == 4
    assert source.gaps == [Gap(start_ns=300_000_000, end_ns=300_000_000, cause="the file is cut off")]


@pytest.mark.parametrize("form", ["PNG", "JPEG", "WEBP", "BMP", "JPEG2000"])
def test_still_pictures(form: str) -> None:
    data = image_bytes(RGB[77 % 12], form)
    (frame,) = decoded(data)
    assert (frame.frame_index, frame.pts_ns) == (0, -1)
    assert number_in(frame.luma) == 5


def test_deep_png_transparency_and_exif() -> None:
    deep = GREY[3].astype(np.uint16) * 10 + 1000
    assert number_in(decoded(image_bytes(deep))[0].luma) == 3
    clear = np.dstack([RGB[4], np.full((48, 64), 255, np.uint8)])
    clear[:, :, 3][40:] = 0
    shown = first_rgb(image_bytes(clear))
    assert number_in(shown) == 4
    assert not shown[40:].any()
    exif = Image.Exif()
    exif[274] = 3
    assert number_in(np.rot90(first_rgb(image_bytes(np.rot90(RGB[5], 2), "JPEG", exif=exif)), 0)) == 5


def test_cut_picture_is_damaged() -> None:
    rng = np.random.default_rng(0)
    data = image_bytes(rng.integers(0, 255, (200, 200, 3), np.uint8))
    with pytest.raises(CorruptMedia, match="damaged or cut off"):
        decoded(data[: len(data) // 2])


def test_picture_bomb_is_refused() -> None:
    with pytest.raises(BudgetExceeded, match="max_pixels_per_frame"):
        opened(image_bytes(np.zeros((4000, 4000), np.uint8)), max_pixels_per_frame=1_000_000)


def test_animation_times() -> None:
    assert [frame.pts_ns for frame in decoded(animation_bytes(list(RGB[:3])))] == [0, 100_000_000, 200_000_000]
