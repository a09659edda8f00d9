"""A file is what its first bytes say, and what can't be read is refused in words."""

import contextlib

import pytest

from tasks.algorithms.sniff import file_meta, is_video_syntax, sniff_kind, transfer_syntax
from tasks.records.errors import CorruptMedia, ScopeFlowError, UnsupportedMedia
from tasks.records.media import MediaKind


def dicom_head(syntax: str | None) -> bytes:
    def element(number: int, vr: bytes, value: bytes) -> bytes:
        return b"\x02\x00" + number.to_bytes(2, "little") + vr + len(value).to_bytes(2, "little") + value

    version = b"\x02\x00\x01\x00OB\0\0\x02\0\0\0\x00\x01"
    body = version + element(0x02, b"UI", b"1.2.840.10008.5.1.4.1.1.7\0")
    if syntax is not None:
        value = syntax.encode()
        body += element(0x10, b"UI", value + b"\0" * (len(value) % 2))
    return bytes(128) + b"DICM" + body + b"\x08\x00\x16\x00UI\x04\x001.2\0"


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (b"\0\0\0\x20ftypisom\0\0\x02\0", MediaKind.VIDEO),
        (b"\0\0\0\x14ftypqt  \0\0\0\0", MediaKind.VIDEO),
        (b"\0\0\0\x18styp", MediaKind.VIDEO),
        (b"\0\0\0\x08wide\0\0\x10\0mdat", MediaKind.VIDEO),
        (b"\x1a\x45\xdf\xa3\x01\0\0\0", MediaKind.VIDEO),
        (b"RIFF\0\0\0\0AVI LIST", MediaKind.VIDEO),
        ((b"\x47" + bytes(187)) * 6, MediaKind.VIDEO),
        ((bytes(4) + b"\x47" + bytes(187)) * 6, MediaKind.VIDEO),
        (b"\0\0\x01\xba\x44\0", MediaKind.VIDEO),
        (b"\0\0\0\x01\x67\x64\0\x1f", MediaKind.VIDEO),
        (b"\0\0\0\x01\x40\x01\x0c\x01", MediaKind.VIDEO),
        (b"FLV\x01\x05", MediaKind.VIDEO),
        (b"OggS\0\x02" + bytes(22) + b"\x01\x2a\x80theora", MediaKind.VIDEO),
        (b"II*\0\x08\0\0\0", MediaKind.TIFF),
        (b"MM\0*\0\0\0\x08", MediaKind.TIFF),
        (b"II+\0\x08\0\0\0", MediaKind.TIFF),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", MediaKind.IMAGE),
        (b"\xff\xd8\xff\xe0\0\x10JFIF", MediaKind.IMAGE),
        (b"RIFF\0\0\0\0WEBPVP8 ", MediaKind.IMAGE),
        (b"GIF89a\x01\0\x01\0", MediaKind.IMAGE),
        (b"BM\x36\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0", MediaKind.IMAGE),
        (b"\0\0\0\x0cjP  \r\n\x87\n", MediaKind.IMAGE),
        (b"\0\0\0\x1cftypavif", MediaKind.IMAGE),
        (dicom_head("1.2.840.10008.1.2.1"), MediaKind.DICOM),
        (dicom_head(None), MediaKind.DICOM),
        (dicom_head("1.2.840.10008.1.2.4.102"), MediaKind.DICOM_VIDEO),
        (dicom_head("1.2.840.10008.1.2.4.100"), MediaKind.DICOM_VIDEO),
        (dicom_head("1.2.840.10008.1.2.4.107"), MediaKind.DICOM_VIDEO),
        (dicom_head("1.2.840.10008.1.2.4.90"), MediaKind.DICOM),
    ],
)
def test_kinds(head: bytes, kind: MediaKind) -> None:
    assert sniff_kind(head) is kind


@pytest.mark.parametrize(
    ("head", "cause", "words"),
    [
        (b"", CorruptMedia, r"^is empty \(0 bytes\)$"),
        (bytes(5000), CorruptMedia, "nothing but zero bytes"),
        (b"\x08\0\x05\0CS\n\0ISO_IR 100", CorruptMedia, "looks like DICOM"),
        (b"\x08\0\x05\0\x0a\0\0\0ISO_IR 100", CorruptMedia, "looks like DICOM"),
        (b"RIFF\0\0\0\0WAVEfmt ", UnsupportedMedia, r"is audio only \(WAV\)"),
        (b"fLaC\0\0\0\x22", UnsupportedMedia, r"is audio only \(FLAC\)"),
        (b"ID3\x04\0\0\0", UnsupportedMedia, r"is audio only \(MP3\)"),
        (b"\xff\xfb\x90\x44\0", UnsupportedMedia, r"is audio only \(MP3\)"),
        (b"\xff\xf1\x50\x80\0", UnsupportedMedia, r"is audio only \(AAC\)"),
        (b"OggS\0\x02" + bytes(22) + b"\x01\x1eOpusHead", UnsupportedMedia, r"is audio only \(Ogg\)"),
        (b"\0\0\0\x20ftypM4A \0\0\0\0", UnsupportedMedia, r"is audio only \(M4A\)"),
        (b"\0\0\0\x20ftypheic\0\0\0\0", UnsupportedMedia, "HEIC"),
        (b"%PDF-1.7", UnsupportedMedia, "PDF"),
        (b"PK\x03\x04", UnsupportedMedia, "ZIP"),
        (b'{"a": 1}\n', UnsupportedMedia, "looks like text"),
        ("Ärztlicher Befund\n".encode() * 300, UnsupportedMedia, "looks like text"),
        ("Befund\n".encode("utf-16"), UnsupportedMedia, "looks like text"),
        (b"#EXTM3U\n", UnsupportedMedia, "looks like text"),
        (b"RIFF\0\0\0\0ACON", UnsupportedMedia, "RIFF"),
        (bytes(range(1, 200)), UnsupportedMedia, "of no kind"),
        (b"BMW is a car", UnsupportedMedia, "looks like text"),
    ],
)
def test_refusals(head: bytes, cause: type[ScopeFlowError], words: str) -> None:
    with pytest.raises(cause, match=words):
        sniff_kind(head, len(head))


def test_any_short_head_has_an_answer() -> None:
    for first in range(256):
        for length in (1, 2, 3, 5, 12):
            head = bytes([first]) * length
            with contextlib.suppress(UnsupportedMedia, CorruptMedia):
                assert sniff_kind(head) in MediaKind


def test_transfer_syntax_and_where_the_data_set_begins() -> None:
    head = dicom_head("1.2.840.10008.1.2.4.102")
    assert transfer_syntax(head) == "1.2.840.10008.1.2.4.102"
    syntax, start = file_meta(head)
    assert syntax == "1.2.840.10008.1.2.4.102"
    assert head[start : start + 4] == b"\x08\x00\x16\x00"
    assert transfer_syntax(head[:150]) is None
    assert not is_video_syntax(None)
    assert not is_video_syntax("1.2.840.10008.1.2.4.10")
