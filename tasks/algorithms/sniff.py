"""Tell what a file is from its first bytes; a name or suffix is never looked at.

Errors are worded to follow a name: ``<pseudonym>: is empty (0 bytes)``.
"""

import re

from tasks.records.errors import CorruptMedia, UnsupportedMedia
from tasks.records.media import MediaKind

HEAD_BYTES = 64 * 1024

# PS3.5 A.4: transfer syntaxes whose pixel data is one bitstream for all frames (MPEG-2, H.264, HEVC).
_VIDEO_SYNTAX = re.compile(r"1\.2\.840\.10008\.1\.2\.4\.10[0-8](\.1)?")

# Elements of groups 0002 and 0008 in explicit VR, with no 'DICM' before them.
_BARE_DICOM = re.compile(rb"[\x02\x08]\x00..(?:CS|UI|UL|OB|DA|TM|SH|LO|PN|DT)", re.DOTALL)

_ISO_FIRST_BOXES = {b"ftyp", b"styp", b"moov", b"moof", b"mdat", b"free", b"skip", b"wide", b"pnot", b"sidx", b"uuid"}
_ISO_AUDIO_BRANDS = {b"M4A ", b"M4B ", b"M4P ", b"F4A ", b"F4B "}
_ISO_HEIF_BRANDS = {b"heic", b"heix", b"hevc", b"heim", b"heis", b"mif1", b"msf1"}

_IMAGE_MARKS = (
    b"\x89PNG\r\n\x1a\n",
    b"\xff\xd8\xff",
    b"GIF87a",
    b"GIF89a",
    b"\x00\x00\x00\x0cjP  \r\n\x87\n",
    b"\xff\x4f\xff\x51",
)
_TIFF_MARKS = (b"II*\x00", b"MM\x00*", b"II+\x00", b"MM\x00+")
_VIDEO_MARKS = (
    b"\x1a\x45\xdf\xa3",  # Matroska, WebM
    b"FLV\x01",
    b"\x30\x26\xb2\x75\x8e\x66\xcf\x11",  # ASF, WMV
    b"\x00\x00\x01\xba",  # MPEG program stream
    b"\x00\x00\x01\xb3",  # MPEG-1/2 elementary stream
    b"YUV4MPEG2 ",
)
_AUDIO_MARKS = ((b"fLaC", "FLAC"), (b"ID3", "MP3"), (b"#!AMR", "AMR"), (b"MAC ", "Monkey's Audio"), (b"caff", "CAF"))
_OTHER_MARKS = (
    (b"%PDF", "a PDF document"),
    (b"PK\x03\x04", "a ZIP archive (or an Office document)"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive"),
    (b"\x28\xb5\x2f\xfd", "a Zstandard archive"),
    (b"\xd0\xcf\x11\xe0", "an old Office document"),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file"),
    (b"\x7fELF", "a program"),
    (b"MZ", "a program"),
)


def sniff_kind(head: bytes, size_bytes: int | None = None) -> MediaKind:
    """Return the kind of a medium.

    Args:
        head: its first bytes, ``HEAD_BYTES`` or the whole file if that is shorter.
        size_bytes: size of the whole file, where known; only used in messages.

    Raises:
        CorruptMedia: empty, all zeros, or DICOM without its mark.
        UnsupportedMedia: audio only, text, or anything that ScopeFlow doesn't read.
    """
    if not head:
        raise CorruptMedia("is empty (0 bytes)")
    if head[128:132] == b"DICM":
        return MediaKind.DICOM_VIDEO if is_video_syntax(transfer_syntax(head)) else MediaKind.DICOM
    for finder in (_riff, _iso, _by_mark, _transport_stream, _elementary_stream):
        kind = finder(head)
        if kind is not None:
            return kind
    raise _refusal(head, size_bytes)


def is_video_syntax(uid: str | None) -> bool:
    """Tell whether a DICOM transfer syntax holds one video bitstream instead of separate frames."""
    return uid is not None and _VIDEO_SYNTAX.fullmatch(uid) is not None


def transfer_syntax(head: bytes) -> str | None:
    """Return the transfer syntax UID (0002,0010) of a DICOM file, or None where its file meta group lacks one."""
    return file_meta(head)[0]


def file_meta(head: bytes) -> tuple[str | None, int]:
    """Return a DICOM file's transfer syntax UID and the offset at which its data set begins.

    The file meta group is always explicit VR little endian (PS3.10 7.1).

    Args:
        head: first bytes of the file, preamble included.
    """
    at = 132
    syntax = None
    while at + 8 <= len(head) and head[at : at + 2] == b"\x02\x00":
        element, vr = head[at + 2 : at + 4], head[at + 4 : at + 6]
        if vr in (b"OB", b"OW", b"UN", b"SQ", b"UT"):
            start, length = at + 12, int.from_bytes(head[at + 8 : at + 12], "little")
        else:
            start, length = at + 8, int.from_bytes(head[at + 6 : at + 8], "little")
        if element == b"\x10\x00":
            syntax = head[start : start + length].rstrip(b"\x00 ").decode("ascii", "replace") or None
        at = start + length
    return syntax, at


def _riff(head: bytes) -> MediaKind | None:
    if head[:4] not in (b"RIFF", b"RF64", b"RIFX", b"FORM"):
        return None
    form = head[8:12]
    if form == b"AVI ":
        return MediaKind.VIDEO
    if form == b"WEBP":
        return MediaKind.IMAGE
    if form == b"WAVE":
        raise _audio_only("WAV")
    if form in (b"AIFF", b"AIFC"):
        raise _audio_only("AIFF")
    raise UnsupportedMedia(f"is a RIFF file of a form that ScopeFlow doesn't read ({_printable(form)})")


def _iso(head: bytes) -> MediaKind | None:
    if head[4:8] not in _ISO_FIRST_BOXES:
        return None
    if head[4:8] == b"ftyp":
        brand = head[8:12]
        if brand in _ISO_AUDIO_BRANDS:
            raise _audio_only("M4A")
        if brand in (b"avif", b"avis"):
            return MediaKind.IMAGE
        if brand in _ISO_HEIF_BRANDS:
            raise UnsupportedMedia("is a HEIF/HEIC picture; convert it to PNG, JPEG or TIFF")
    return MediaKind.VIDEO


def _by_mark(head: bytes) -> MediaKind | None:
    if head.startswith(_TIFF_MARKS):
        return MediaKind.TIFF
    if head.startswith(_IMAGE_MARKS) or _is_bmp(head):
        return MediaKind.IMAGE
    if head.startswith(_VIDEO_MARKS):
        return MediaKind.VIDEO
    if head.startswith(b"OggS"):
        if b"\x80theora" in head[:4096] or b"\x01video" in head[:4096]:
            return MediaKind.VIDEO
        raise _audio_only("Ogg")
    for mark, name in _AUDIO_MARKS:
        if head.startswith(mark):
            raise _audio_only(name)
    for mark, name in _OTHER_MARKS:
        if head.startswith(mark):
            raise UnsupportedMedia(f"is {name}, not a picture, a video or DICOM")
    return None


def _is_bmp(head: bytes) -> bool:
    # "BM" alone is too common a start; the header that follows has one of a few sizes.
    return head[:2] == b"BM" and int.from_bytes(head[14:18], "little") in (12, 40, 52, 56, 64, 108, 124)


def _transport_stream(head: bytes) -> MediaKind | None:
    for first, step in ((0, 188), (4, 192), (0, 204)):
        marks = head[first : first + step * 5 : step]
        if len(head) > first + step and marks and set(marks) == {0x47}:
            return MediaKind.VIDEO
    return None


def _elementary_stream(head: bytes) -> MediaKind | None:
    start = 4 if head.startswith(b"\x00\x00\x00\x01") else 3 if head.startswith(b"\x00\x00\x01") else None
    if start is not None and len(head) > start + 1:
        unit = head[start]
        is_h264 = unit & 0x9F in (7, 9)  # sequence parameters, access unit delimiter
        is_hevc = unit >> 1 in (32, 33, 35) and head[start + 1] & 0xF8 == 0
        return MediaKind.VIDEO if is_h264 or is_hevc else None
    if head[0] == 0xFF and len(head) > 3:
        if head[1] & 0xF6 == 0xF0:
            raise _audio_only("AAC")
        if head[1] & 0xE0 == 0xE0 and head[1] & 0x06 in (2, 4) and head[2] & 0xF0 not in (0x00, 0xF0):
            raise _audio_only("MP3")
    return None


def _refusal(head: bytes, size_bytes: int | None) -> CorruptMedia | UnsupportedMedia:
    if _BARE_DICOM.search(head[:256]) or (head[:2] == b"\x08\x00" and 0 < int.from_bytes(head[4:8], "little") < 256):
        return CorruptMedia("looks like DICOM, but its preamble and 'DICM' mark are missing: export it again")
    if not any(head):
        return CorruptMedia("holds nothing but zero bytes: the copy was probably interrupted")
    if _is_text(head):
        return UnsupportedMedia("looks like text, not a picture, a video or DICOM")
    size = "" if size_bytes is None else f"; {size_bytes:,} bytes"
    return UnsupportedMedia(f"is of no kind that ScopeFlow reads (its first bytes are {head[:8].hex(' ')}{size})")


def _is_text(head: bytes) -> bool:
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        try:
            return head[: len(head) // 2 * 2].decode("utf-16").isprintable() or b"\x00\n" in head or b"\n\x00" in head
        except UnicodeDecodeError:
            return False
    sample = head[:4096]
    if b"\x00" in sample:
        return False
    try:
        text = sample.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.start < len(sample) - 4:  # not merely a character cut at the end
            return False
        text = sample[: error.start].decode("utf-8")
    return bool(text) and sum(char.isprintable() or char in "\r\n\t\f" for char in text) >= 0.97 * len(text)


def _audio_only(name: str) -> UnsupportedMedia:
    return UnsupportedMedia(f"is audio only ({name}); ScopeFlow needs pictures, a video or DICOM")


def _printable(raw: bytes) -> str:
    return "".join(chr(byte) if 32 <= byte < 127 else "?" for byte in raw).strip() or "unnamed"
