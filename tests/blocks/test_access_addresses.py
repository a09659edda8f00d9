"""Addresses: one spelling each, labels without names, keys that every store can hold."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from blocks.access import LocalConfig, S3Config, check_key, config_from, label_of, revealed, split_s3_uri
from blocks.access_local import LocalAccess, file_uri, path_of
from blocks.access_open import access_for, normalise_uri, open_access
from tasks.records.errors import ConfigurationError, UnsupportedMedia

ODD_NAMES = [
    "病例 001+ü.mp4",
    "a b.mp4",
    "x#1?.mp4",
    "100%.mp4",
    "a%20b.mp4",
    "a&b=c.mp4",
    "q'uote\".mp4",
    "back\\slash.mp4",
]


@pytest.mark.parametrize("name", ODD_NAMES)
def test_a_path_becomes_an_absolute_quoted_uri(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / name).write_bytes(b"x")
    monkeypatch.chdir(tmp_path)
    uri = normalise_uri(name)
    assert uri.isascii()
    assert not set(" #?") & set(uri)
    assert path_of(uri) == tmp_path / name
    assert normalise_uri(str(tmp_path / name)) == uri
    assert normalise_uri(uri) == uri
    assert LocalAccess(LocalConfig(root=str(tmp_path))).read_bytes(uri) == b"x"


def test_a_file_uri_is_unquoted_once_and_localhost_dropped() -> None:
    assert normalise_uri("file://localhost/nowhere/a%20b.mp4") == "file:///nowhere/a%20b.mp4"
    assert normalise_uri("FILE:///nowhere/a b#1%.mp4") == "file:///nowhere/a%20b%231%25.mp4"


def test_a_name_that_is_not_unicode_survives(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/\xff\xfe.mp4"
    Path(os.fsdecode(path)).write_bytes(b"x")
    uri = normalise_uri(os.fsdecode(path))
    assert uri.isascii()
    assert LocalAccess(LocalConfig(root=str(tmp_path))).stat(uri).size_bytes == 1
    assert label_of(uri).startswith("file://…(")


def test_folders_are_resolved_as_the_system_does_and_a_last_link_keeps_its_name(tmp_path: Path) -> None:
    (tmp_path / "far" / "inner").mkdir(parents=True)
    (tmp_path / "far" / "clip.mp4").write_bytes(b"x")
    (tmp_path / "near").symlink_to(tmp_path / "far" / "inner")
    (tmp_path / "link.mp4").symlink_to(tmp_path / "far" / "clip.mp4")
    assert normalise_uri(f"{tmp_path}/near/../clip.mp4") == file_uri(tmp_path / "far" / "clip.mp4")
    assert normalise_uri(f"{tmp_path}/link.mp4") == file_uri(tmp_path / "link.mp4")


@pytest.mark.parametrize("key", [*ODD_NAMES, "a//b", "../x", "a/./b", " lead", "é"])
def test_an_s3_key_stays_raw(key: str) -> None:
    assert normalise_uri(f"s3://bucket/{key}") == f"s3://bucket/{key}"
    assert normalise_uri(f"S3://bucket/{key}") == f"s3://bucket/{key}"
    assert split_s3_uri(f"s3://bucket/{key}") == ("bucket", key)


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("", ConfigurationError, "empty"),
        ("  ", ConfigurationError, "empty"),
        ("a\0b", ConfigurationError, "NUL"),
        ("s3:///key", ConfigurationError, "bucket is missing"),
        ("s3:/bucket/key", ConfigurationError, "two slashes"),
        ("s3://bucket", UnsupportedMedia, "is a folder"),
        ("s3://bucket/", UnsupportedMedia, "is a folder"),
        ("s3://bucket/Doe^John/", UnsupportedMedia, "is a folder"),
        ("file://server/share/a.mp4", ConfigurationError, "file:///absolute/path"),
        ("file://a.mp4", ConfigurationError, "file:///absolute/path"),
        ("file:///a%00b", ConfigurationError, "NUL"),
        ("http://host/a.mp4", UnsupportedMedia, "download"),
        ("HTTPS://host/a.mp4", UnsupportedMedia, "download"),
        ("gs://bucket/key", UnsupportedMedia, "gs://"),
        ("/tmp", UnsupportedMedia, "is a directory"),
        ("/", UnsupportedMedia, "is a directory"),
        (".", UnsupportedMedia, "is a directory"),
        ("..", UnsupportedMedia, "is a directory"),
    ],
)
def test_other_addresses_are_refused_with_a_reason(text: str, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words) as caught:
        normalise_uri(text)
    assert "Doe" not in str(caught.value)


@given(st.text(min_size=1).filter(lambda text: "\0" not in text))
def test_a_label_tells_the_bucket_and_nothing_of_the_key(key: str) -> None:
    label = label_of(f"s3://bucket/{key}")
    assert label.startswith("s3://bucket/…(")
    assert label.endswith(")")
    assert len(label) == len("s3://bucket/…(01234567)")
    assert label_of(f"file:///{key}").startswith("file://…(")


def test_labels_tell_media_apart() -> None:
    assert len({label_of("s3://b/x"), label_of("s3://b/y"), label_of("file:///x"), label_of("file:///y")}) == 4
    assert label_of("/home/Doe^John.mp4") == label_of("/home/Doe^John.mp4")
    assert "Doe" not in label_of("/home/Doe^John.mp4")


@pytest.mark.parametrize(
    "key", ["a", "a/b.c", "病例 001+ü", "a%20b", "#?", "...", ".hidden", "x" * 255, "/".join(["x" * 99] * 9)]
)
def test_a_good_key_passes(key: str) -> None:
    assert check_key(key, prefix="reports") == key


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("", "empty"),
        ("/a", "empty segment"),
        ("a/", "empty segment"),
        ("a//b", "empty segment"),
        ("..", "segment"),
        ("a/../b", "segment"),
        ("./a", "segment"),
        ("a\nb", "control"),
        ("a\0b", "control"),
        ("\ud800", "Unicode"),
        ("x" * 256, "255 bytes"),
        ("é" * 128, "255 bytes"),
        ("/".join(["x" * 200] * 6), "1024"),
        (".scopeflow-tmp-1/x", "tmp"),
    ],
)
def test_a_bad_key_is_refused_with_its_rule(key: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        check_key(key)
    with pytest.raises(ConfigurationError, match=words):
        LocalAccess(LocalConfig(root="/nowhere")).uri_of(key)


def test_the_prefix_counts_in_the_length() -> None:
    check_key("/".join(["x" * 200] * 4))
    with pytest.raises(ConfigurationError, match="1024"):
        check_key("/".join(["x" * 200] * 4), prefix="/".join(["y" * 150] * 2))


def test_a_configuration_travels_as_json_with_its_secret() -> None:
    config = S3Config(bucket="b", access_key_id="k", secret_access_key=SecretStr("hush"))
    assert "hush" not in repr(config) + config.model_dump_json()
    assert config_from(json.loads(json.dumps(revealed(config)))) == config
    assert config_from(revealed(LocalConfig(root="/x"))) == LocalConfig(root="/x")


def test_a_medium_is_read_through_the_store_that_reaches_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    local = open_access(LocalConfig(root=str(tmp_path)))
    remote = open_access(S3Config(bucket="results", access_key_id="k", secret_access_key=SecretStr("s")))
    assert access_for("file:///a.mp4", local) is local
    assert access_for("s3://media/a.mp4", remote) is remote
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    from_environment = access_for("s3://media/a.mp4", local)
    assert from_environment.root_uri == "s3://media"
    assert from_environment.config.region == "eu-central-1"  # type: ignore[attr-defined]
    reader = access_for(file_uri(tmp_path / "a.mp4"), remote)
    (tmp_path / "a.mp4").write_bytes(b"x")
    assert reader.read_bytes(file_uri(tmp_path / "a.mp4")) == b"x"
    with pytest.raises(ConfigurationError, match="only reads"):
        reader.write_bytes("a", b"x")
    with pytest.raises(ConfigurationError, match="only reads"):
        reader.delete(file_uri(tmp_path / "a.mp4"))


def test_half_a_credential_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="both"):
        open_access(S3Config(bucket="b", access_key_id="k"))
