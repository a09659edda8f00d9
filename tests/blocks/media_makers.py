"""Small media made in the test: every frame carries its own number as a pattern that survives compression."""

import io
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import av
import numpy as np
import numpy.typing as npt
import tifffile
from PIL import Image
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.encaps import encapsulate
from pydicom.filewriter import dcmwrite
from pydicom.uid import (
    ExplicitVRLittleEndian,
    RLELossless,
    SecondaryCaptureImageStorage,
    UltrasoundMultiFrameImageStorage,
)

Pixels = npt.NDArray[np.uint8]

_BITS = 8


def numbered(number: int, width: int = 64, height: int = 48) -> Pixels:
    """Return a (H, W, 3) picture whose upper half spells ``number`` in eight black and white bars over a ramp."""
    ramp = np.linspace(40, 200, width, dtype=np.uint8)
    picture = np.repeat(np.repeat(ramp[None, :, None], height, 0), 3, 2).copy()
    for bit in range(_BITS):
        left, right = bit * width // _BITS, (bit + 1) * width // _BITS
        picture[: height // 2, left:right] = 235 if number >> bit & 1 else 20
    return picture


def number_in(picture: npt.NDArray[Any]) -> int:
    """Return the number that ``numbered`` put into a picture, grey or RGB."""
    grey = picture.astype(np.float64).mean(axis=2) if picture.ndim == 3 else picture.astype(np.float64)
    height, width = grey.shape
    middles = [(2 * bit + 1) * width // (2 * _BITS) for bit in range(_BITS)]
    return sum(
        1 << bit for bit, x in enumerate(middles) if grey[height // 8 : height * 3 // 8, x - 1 : x + 2].mean() > 127
    )


def video_bytes(
    count: int = 30,
    *,
    size: tuple[int, int] = (64, 48),
    container: str = "mp4",
    codec: str = "libx264",
    pix_fmt: str = "yuv420p",
    times_ms: Sequence[int] | None = None,
    gop: int = 10,
    rotation: int = 0,
    sample_aspect: Fraction | None = None,
    first: int = 0,
    options: dict[str, str] | None = None,
    noise: float = 0.0,
) -> bytes:
    """Return a video whose frame n shows ``numbered(first + n)`` at ``times_ms[n]``, 40 ms apart by default."""
    out = io.BytesIO()
    rng = np.random.default_rng(7)
    with av.open(out, "w", format=container) as target:
        stream = target.add_stream(codec, rate=25, options={"g": str(gop), "crf": "10", "bf": "2", **(options or {})})
        stream.width, stream.height, stream.pix_fmt = *size, pix_fmt
        tick = Fraction(1, 25) if container == "avi" else Fraction(1, 1000)
        stream.codec_context.time_base = stream.time_base = tick
        if rotation:
            stream.set_display_rotation(rotation)
        if sample_aspect is not None:
            stream.codec_context.sample_aspect_ratio = sample_aspect
        for index in range(count):
            picture = numbered(first + index, *size)
            if noise:
                picture = np.clip(picture + rng.normal(0, noise, picture.shape), 0, 255).astype(np.uint8)
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
            frame.pts = round((times_ms[index] if times_ms is not None else index * 40) / 1000 / tick)
            frame.time_base = tick
            target.mux(stream.encode(frame))
        target.mux(stream.encode(None))
    return out.getvalue()


def audio_only_bytes() -> bytes:
    """Return an MP4 with half a second of silence and no picture."""
    out = io.BytesIO()
    with av.open(out, "w", format="mp4") as target:
        stream = target.add_stream("aac", rate=16_000, layout="mono")
        for index in range(8):
            frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
            frame.sample_rate, frame.pts = 16_000, index * 1024
            target.mux(stream.encode(frame))
        target.mux(stream.encode(None))
    return out.getvalue()


def dicom_bytes(
    frames: npt.NDArray[Any],
    *,
    photometric: str = "MONOCHROME2",
    rle: bool = False,
    syntax: str | None = None,
    bitstream: bytes | None = None,
    fragment_bytes: int | None = None,
    bits_stored: int | None = None,
    **elements: Any,
) -> bytes:
    """Return a DICOM file of (N, H, W) or (N, H, W, 3) frames, native or RLE, or around a video bitstream."""
    dataset = Dataset()
    dataset.SOPClassUID = UltrasoundMultiFrameImageStorage if len(frames) > 1 else SecondaryCaptureImageStorage
    dataset.SOPInstanceUID = "1.2.826.0.1.3680043.8.498.1"
    dataset.PatientName = "Mustermann^Erika"
    dataset.SamplesPerPixel = 3 if frames.ndim == 4 else 1
    dataset.PhotometricInterpretation = photometric
    if frames.ndim == 4:
        dataset.PlanarConfiguration = 0
    dataset.Rows, dataset.Columns = frames.shape[1:3]
    dataset.BitsAllocated = frames.dtype.itemsize * 8
    dataset.BitsStored = bits_stored or dataset.BitsAllocated
    dataset.HighBit = dataset.BitsStored - 1
    dataset.PixelRepresentation = int(frames.dtype.kind == "i")
    dataset.NumberOfFrames = str(len(frames))
    for name, value in elements.items():
        setattr(dataset, name, value)
    meta = FileMetaDataset()
    meta.MediaStorageSOPClassUID = dataset.SOPClassUID
    meta.MediaStorageSOPInstanceUID = dataset.SOPInstanceUID
    meta.TransferSyntaxUID = syntax or (RLELossless if rle else ExplicitVRLittleEndian)
    dataset.file_meta = meta
    if bitstream is not None:
        step = fragment_bytes or len(bitstream)
        parts = [bitstream[at : at + step] for at in range(0, len(bitstream), step)]
        items = b"".join(
            b"\xfe\xff\x00\xe0"
            + len(part + b"\0" * (len(part) % 2)).to_bytes(4, "little")
            + part
            + b"\0" * (len(part) % 2)
            for part in parts
        )
        dataset.PixelData = b"\xfe\xff\x00\xe0\0\0\0\0" + items + b"\xfe\xff\xdd\xe0\0\0\0\0"
        dataset["PixelData"].VR = "OB"
        dataset["PixelData"].is_undefined_length = True
    elif rle:
        from pydicom.pixels.encoders import RLELosslessEncoder

        encoded = [
            RLELosslessEncoder.encode(
                frame.tobytes(),
                rows=dataset.Rows,
                columns=dataset.Columns,
                samples_per_pixel=dataset.SamplesPerPixel,
                bits_allocated=dataset.BitsAllocated,
                bits_stored=dataset.BitsStored,
                pixel_representation=dataset.PixelRepresentation,
                photometric_interpretation=photometric,
                planar_configuration=0,
                number_of_frames=1,
            )
            for frame in frames
        ]
        dataset.PixelData = encapsulate(encoded)
        dataset["PixelData"].VR = "OB"
        dataset["PixelData"].is_undefined_length = True
    else:
        dataset.PixelData = frames.astype(frames.dtype.newbyteorder("<")).tobytes()
        dataset["PixelData"].VR = "OW" if dataset.BitsAllocated > 8 else "OB"
    out = io.BytesIO()
    dcmwrite(out, dataset, enforce_file_format=True)
    return out.getvalue()


def tiff_bytes(pages: Sequence[npt.NDArray[Any]], **options: Any) -> bytes:
    """Return a TIFF of pages that may differ in size and depth."""
    out = io.BytesIO()
    with tifffile.TiffWriter(out, bigtiff=options.pop("bigtiff", False)) as target:
        for page in pages:
            target.write(page, metadata=None, **options)
    return out.getvalue()


def image_bytes(picture: npt.NDArray[Any], form: str = "PNG", **options: Any) -> bytes:
    """Return one picture in a format that Pillow writes."""
    out = io.BytesIO()
    Image.fromarray(picture).save(out, form, **options)
    return out.getvalue()


def animation_bytes(pictures: Sequence[Pixels], form: str = "WEBP", duration_ms: int = 100) -> bytes:
    """Return an animation without loss."""
    out = io.BytesIO()
    first, *rest = [Image.fromarray(picture) for picture in pictures]
    options = {"lossless": True} if form == "WEBP" else {}
    first.save(out, form, save_all=True, append_images=rest, duration=duration_ms, loop=0, **options)
    return out.getvalue()
