"""One contract for every kind of source, and what each kind must get right, on media made here."""

import io
import itertools
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from blocks.frame_source import DecodedFrame, FrameSource, FrameTarget, Limits, open_source
from tasks.algorithms.sniff import HEAD_BYTES, sniff_kind
from tasks.records.errors import BudgetExceeded, CorruptMedia, MediaChanged, ScopeFlowError, UnsupportedMedia
from tasks.records.media import MediaKind
from tasks.records.specs import DecodeSpec
from tests.blocks.media_makers import (
    animation_bytes,
    audio_only_bytes,
    dicom_bytes,
    image_bytes,
    number_in,
    numbered,
    tiff_bytes,
    video_bytes,
)

LIMITS = {"max_frames": 10_000, "max_pixels_per_frame": 10_000_000, "max_seconds": 60.0}
GREY = np.stack([numbered(n)[:, :, 0] for n in range(12)])
RGB = np.stack([numbered(n) for n in range(12)])


class Trickle(io.RawIOBase):
    """A raw stream as a store gives it: short reads, and nothing to reach around it."""

    def __init__(self, data: bytes, most: int = 4000) -> None:
        super().__init__()
        self._inner = io.BytesIO(data)
        self._most = most
        self.fail_after: int | None = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._inner.seek(offset, whence)

    def tell(self) -> int:
        return self._inner.tell()

    def readinto(self, buffer: Any) -> int:
        if self.fail_after is not None:
            self.fail_after -= 1
            if self.fail_after < 0:
                raise MediaChanged("file://…(00000000): changed since the run began")
        data = self._inner.read(min(len(buffer), self._most))
        buffer[: len(data)] = data
        return len(data)


def opened(data: bytes, **limits: Any) -> FrameSource:
    kind = sniff_kind(data[:HEAD_BYTES], len(data))
    return open_source(kind, Trickle(data), Limits(**{**LIMITS, **limits}))


def decoded(data: bytes, **limits: Any) -> list[DecodedFrame]:
    return list(opened(data, **limits).frames())


def outcome(data: bytes) -> list[DecodedFrame] | ScopeFlowError:
    try:
        return decoded(data)
    except ScopeFlowError as error:
        return error


def target_of(frame: DecodedFrame) -> FrameTarget:
    return FrameTarget(frame.frame_index, frame.pts_ns if frame.pts_ns != -1 else None)


KINDS: dict[str, tuple[Callable[[], bytes], MediaKind]] = {
    "mp4": (lambda: video_bytes(12), MediaKind.VIDEO),
    "mkv": (lambda: video_bytes(12, container="matroska"), MediaKind.VIDEO),
    "mpegts": (lambda: video_bytes(12, container="mpegts"), MediaKind.VIDEO),
    "avi": (lambda: video_bytes(12, container="avi", codec="mpeg4", options={"bf": "0", "q": "2"}), MediaKind.VIDEO),
    "vp9 webm": (lambda: video_bytes(12, container="webm", codec="libvpx-vp9"), MediaKind.VIDEO),
    "10-bit": (lambda: video_bytes(12, pix_fmt="yuv420p10le"), MediaKind.VIDEO),
    "hevc": (lambda: video_bytes(12, codec="libx265", options={"x265-params": "log-level=none"}), MediaKind.VIDEO),
    "rgb video": (lambda: video_bytes(12, container="avi", codec="rawvideo", pix_fmt="bgr24"), MediaKind.VIDEO),
    "dicom native": (lambda: dicom_bytes(GREY), MediaKind.DICOM),
    "dicom rgb": (lambda: dicom_bytes(RGB, photometric="RGB"), MediaKind.DICOM),
    "dicom rle": (lambda: dicom_bytes(GREY, rle=True), MediaKind.DICOM),
    "dicom video": (
        lambda: dicom_bytes(GREY, syntax="1.2.840.10008.1.2.4.102", bitstream=video_bytes(12), fragment_bytes=1001 * 2),
        MediaKind.DICOM_VIDEO,
    ),
    "tiff": (lambda: tiff_bytes(RGB, photometric="rgb"), MediaKind.TIFF),
    "bigtiff": (lambda: tiff_bytes(GREY, bigtiff=True), MediaKind.TIFF),
    "webp": (lambda: animation_bytes(list(RGB)), MediaKind.IMAGE),
    "gif": (lambda: animation_bytes(list(RGB), "GIF"), MediaKind.IMAGE),
}


@pytest.fixture(params=KINDS, scope="module")
def medium(request: pytest.FixtureRequest) -> tuple[bytes, MediaKind]:
    make, kind = KINDS[request.param]
    return make(), kind


def test_kind_is_told_from_bytes(medium: tuple[bytes, MediaKind]) -> None:
    data, kind = medium
    assert sniff_kind(data[:HEAD_BYTES]) is kind


def test_every_frame_is_delivered_in_order(medium: tuple[bytes, MediaKind]) -> None:
    source = opened(medium[0])
    frames = list(source.frames())
    assert [frame.frame_index for frame in frames] == list(range(12))
    assert [number_in(frame.luma) for frame in frames] == list(range(12))
    assert not any(frame.is_corrupt for frame in frames)
    times = [frame.pts_ns for frame in frames]
    assert set(times) == {-1} or all(later > earlier for earlier, later in itertools.pairwise(times))
    assert source.gaps == []
    assert source.warnings == []
    assert source.decoder
    source.close()


def test_luma_is_two_dimensional_bytes(medium: tuple[bytes, MediaKind]) -> None:
    frame = decoded(medium[0])[5]
    assert frame.luma.dtype == np.uint8
    assert frame.luma.shape == (48, 64)


def test_extraction_gives_the_frames_that_were_decoded(medium: tuple[bytes, MediaKind]) -> None:
    frames = decoded(medium[0])
    for wanted in ([0], [11], [3, 4, 9], list(range(12))):
        pictures = dict(opened(medium[0]).extract([target_of(frames[index]) for index in wanted]))
        assert list(pictures) == wanted
        assert [number_in(picture) for picture in pictures.values()] == wanted
        assert all(picture.shape == (48, 64, 3) and picture.dtype == np.uint8 for picture in pictures.values())


def test_probe_decodes_nothing_and_agrees(medium: tuple[bytes, MediaKind]) -> None:
    probe = opened(medium[0], max_frames=1).probe()
    assert (probe.width_px, probe.height_px) == (64, 48)
    assert probe.frame_count_from_header in (None, 12)
    assert not probe.has_audio


def test_frame_limit_stops_and_names_the_setting(medium: tuple[bytes, MediaKind]) -> None:
    with pytest.raises(BudgetExceeded, match="more than 5 frames; raise max_frames"):
        decoded(medium[0], max_frames=5)


def test_pixel_limit_stops_before_decoding(medium: tuple[bytes, MediaKind]) -> None:
    with pytest.raises(BudgetExceeded, match="max_pixels_per_frame"):
        decoded(medium[0], max_pixels_per_frame=1000)


def test_time_limit_stops(medium: tuple[bytes, MediaKind]) -> None:
    with pytest.raises(BudgetExceeded, match="max_seconds"):
        decoded(medium[0], max_seconds=-1.0)


def test_error_of_the_stream_comes_through(medium: tuple[bytes, MediaKind]) -> None:
    data, kind = medium
    for reads in (0, 1, 2):
        stream = Trickle(data, most=300)
        stream.fail_after = reads
        with pytest.raises(MediaChanged, match="changed since the run began"):
            list(open_source(kind, stream, Limits(**LIMITS)).frames())


def test_cut_off_anywhere_ends_in_frames_or_a_clear_error(medium: tuple[bytes, MediaKind]) -> None:
    data = medium[0]
    for share in (0.02, 0.3, 0.6, 0.9):
        found = outcome(data[: int(len(data) * share)])
        if isinstance(found, ScopeFlowError):
            assert found.message[:1].islower()
            assert "Mustermann" not in found.message
        else:
            assert 1 <= len(found) <= 12


# -- video ------------------------------------------------------------------------------------------------------


def test_variable_rate_keeps_the_containers_times() -> None:
    times_ms = [0, 10, 50, 51, 300, 301, 302, 900, 2000, 2040]
    frames = decoded(video_bytes(10, times_ms=times_ms))
    assert [frame.pts_ns for frame in frames] == [time * 1_000_000 for time in times_ms]


def test_first_frame_keeps_its_own_time() -> None:
    frames = decoded(video_bytes(5, times_ms=[500, 540, 580, 620, 660], container="matroska"))
    assert frames[0].pts_ns == 500_000_000


def test_ten_bits_are_scaled_not_misread() -> None:
    eight, ten = decoded(video_bytes(3)), decoded(video_bytes(3, pix_fmt="yuv420p10le"))
    difference = np.abs(eight[1].luma.astype(int) - ten[1].luma.astype(int))
    assert difference.mean() < 2


@pytest.mark.parametrize("size", [(50, 38), (66, 50), (318, 180)])
def test_rows_longer_than_the_width_are_not_skewed(size: tuple[int, int]) -> None:
    frames = decoded(video_bytes(3, size=size))
    assert frames[2].luma.shape == size[::-1]
    assert [number_in(frame.luma) for frame in frames] == [0, 1, 2]


@pytest.mark.parametrize(("rotation", "turns"), [(90, 1), (180, 2), (-90, 3)])
def test_rotation_is_applied_to_extracted_frames(rotation: int, turns: int) -> None:
    data = video_bytes(3, rotation=rotation)
    (_, picture), *_ = opened(data).extract([target_of(decoded(data)[1])])
    assert number_in(np.rot90(picture, -turns)) == 1
    assert picture.shape == ((64, 48, 3) if turns % 2 else (48, 64, 3))


@pytest.mark.parametrize(("aspect", "shape"), [(Fraction(4, 3), (48, 85, 3)), (Fraction(1, 2), (96, 64, 3))])
def test_extracted_pixels_are_square(aspect: Fraction, shape: tuple[int, int, int]) -> None:
    data = video_bytes(3, sample_aspect=aspect)
    source = opened(data)
    assert source.probe().sample_aspect_ratio == (aspect.numerator, aspect.denominator)
    (_, picture), *_ = source.extract([FrameTarget(0, decoded(data)[0].pts_ns)])
    assert picture.shape == shape


def test_size_change_in_mid_stream() -> None:
    data = video_bytes(5, container="mpegts") + video_bytes(5, container="mpegts", size=(96, 64), first=5)
    frames = decoded(data)
    assert {frame.luma.shape for frame in frames} == {(48, 64), (64, 96)}
    assert number_in(frames[-1].luma) == 9


def test_exact_extraction_across_keyframes_and_open_gops() -> None:
    for options in ({}, {"x264-params": "open-gop=1:bframes=3:keyint=12:min-keyint=12"}):
        data = video_bytes(120, gop=12, options=options)
        frames = decoded(data)
        wanted = [1, 11, 12, 13, 47, 48, 119]
        pictures = dict(opened(data).extract([target_of(frames[index]) for index in wanted]))
        assert {index: number_in(picture) for index, picture in pictures.items()} == {index: index for index in wanted}
        all_pictures = dict(opened(data).extract([target_of(frame) for frame in frames]))
        assert all(np.array_equal(all_pictures[index], picture) for index, picture in pictures.items())


def test_extraction_never_decodes_far_more_than_it_must(monkeypatch: pytest.MonkeyPatch) -> None:
    from blocks.frame_sources.video import VideoSource

    data = video_bytes(200, gop=10)
    source = opened(data)
    counted = 0
    pts_of = VideoSource._pts_ns

    def counting(self: VideoSource, frame: Any, index: int) -> int:
        nonlocal counted
        counted += 1
        return pts_of(self, frame, index)

    monkeypatch.setattr(VideoSource, "_pts_ns", counting)
    list(source.extract([FrameTarget(index, index * 40_000_000) for index in (5, 100, 195)]))
    assert counted <= 60
    counted = 0
    list(opened(data).extract([FrameTarget(index, index * 40_000_000) for index in range(200)]))
    assert counted == 200


def test_extraction_with_times_that_are_wrong_is_refused() -> None:
    with pytest.raises(CorruptMedia, match="another time"):
        list(opened(video_bytes(10)).extract([FrameTarget(3, 123)]))


def test_damaged_middle_is_skipped_and_reported() -> None:
    data = bytearray(video_bytes(100, noise=20.0, gop=10))
    data[len(data) // 2 : len(data) // 2 + 3000] = bytes(3000)
    source = opened(bytes(data))
    frames = list(source.frames())
    good = [frame for frame in frames if not frame.is_corrupt]
    assert 75 <= len(good) < 100
    assert number_in(good[0].luma) == 0
    assert number_in(good[-1].luma) == 99
    assert source.gaps
    assert all(0 < gap.start_ns <= gap.end_ns < 99 * 40_000_000 for gap in source.gaps)
    assert 1_000_000_000 < source.gaps[0].start_ns < 3_000_000_000


def test_cut_off_file_gives_its_frames_and_a_warning() -> None:
    data = video_bytes(100, noise=20.0, options={"movflags": "+faststart"}, container="mp4")
    data = _faststart(data)
    source = opened(data[: len(data) * 6 // 10])
    frames = list(source.frames())
    assert 50 <= sum(not frame.is_corrupt for frame in frames) <= 65
    assert "the file is cut off or damaged" in " ".join(source.warnings)


def _faststart(data: bytes) -> bytes:
    """Move the index of a plain MP4 before its frames, as web servers want it."""
    import tempfile

    import av

    with tempfile.NamedTemporaryFile(suffix=".mp4") as file:
        with av.open(io.BytesIO(data)) as source, av.open(file.name, "w", options={"movflags": "+faststart"}) as target:
            track = source.streams.video[0]
            copy = target.add_stream_from_template(track)
            for packet in source.demux(track):
                if packet.dts is not None:
                    packet.stream = copy
                    target.mux(packet)
        return file.read()


def test_missing_index_is_named() -> None:
    data = video_bytes(50, noise=20.0)
    with pytest.raises(CorruptMedia, match=r"its index \(moov\) is missing: the file is cut off"):
        opened(data[: len(data) // 2])


def test_audio_only() -> None:
    with pytest.raises(UnsupportedMedia, match="has an audio track but no picture"):
        opened(audio_only_bytes())


def test_zero_frames() -> None:
    data = bytearray(video_bytes(30, noise=20.0))
    start, end = data.find(b"mdat") + 4, data.find(b"moov") - 4
    data[start:end] = bytes(end - start)
    with pytest.raises(CorruptMedia, match=r"no frame could be decoded|damaged"):
        decoded(bytes(data))


def test_scrambled_payload_is_called_damaged_or_encrypted() -> None:
    data = bytearray(video_bytes(60, noise=20.0))
    start, end = data.find(b"mdat") + 2000, data.find(b"moov") - 4
    rng = np.random.default_rng(3)
    for at in range(start, end - 16, 16):  # lengths of units stay readable, contents do not
        if rng.random() < 0.8:
            data[at + 6 : at + 14] = rng.bytes(8)
    found = outcome(bytes(data))
    assert isinstance(found, CorruptMedia)
    assert "damaged all over or encrypted" in found.message or "no frame" in found.message


def test_playlists_and_foreign_containers_are_not_followed() -> None:
    playlist = b"#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXTINF:10,\nfile:///etc/hostname\n"
    with pytest.raises(UnsupportedMedia, match="text"):
        opened(playlist)
    with pytest.raises(CorruptMedia):
        open_source(MediaKind.VIDEO, Trickle(playlist), Limits(**LIMITS))


def test_luma_outlives_the_source() -> None:
    source = opened(video_bytes(20))
    frames = list(source.frames())
    source.close()
    assert [number_in(frame.luma) for frame in frames] == list(range(20))


# -- DICOM ------------------------------------------------------------------------------------------------------


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
    from pydicom.dataset import Dataset

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


def test_dicom_without_pixels_is_named() -> None:
    from pydicom.dataset import Dataset, FileMetaDataset
    from pydicom.filewriter import dcmwrite

    report = Dataset()
    report.SOPClassUID, report.SOPInstanceUID = "1.2.840.10008.5.1.4.1.1.88.11", "1.2.3"
    report.file_meta = FileMetaDataset()
    report.file_meta.TransferSyntaxUID = "1.2.840.10008.1.2.1"
    out = io.BytesIO()
    dcmwrite(out, report, enforce_file_format=True)
    with pytest.raises(UnsupportedMedia, match=r"without pixel data \(Basic Text SR Storage\)"):
        opened(out.getvalue())


def test_no_patient_in_what_a_source_keeps() -> None:
    from blocks.frame_sources.dicom_header import read_header

    header = read_header(io.BytesIO(dicom_bytes(GREY)))
    assert "PatientName" not in header.dataset
    assert "Mustermann" not in str(header)


def test_video_dicom_tolerates_a_pad_byte_and_keeps_times() -> None:
    stream = video_bytes(12)
    stream += b"" if len(stream) % 2 else b"\0"
    data = dicom_bytes(GREY, syntax="1.2.840.10008.1.2.4.102", bitstream=stream[: len(stream) | 1])
    frames = decoded(data)
    assert [frame.pts_ns for frame in frames] == [index * 40_000_000 for index in range(12)]


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
    from PIL import Image

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


def test_limits_come_from_the_spec() -> None:
    limits = Limits.of(DecodeSpec(max_frames=7))
    assert limits.max_frames == 7
