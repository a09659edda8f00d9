import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from blocks.lifeline import free_port
from tasks.records.errors import ConfigurationError
from tests import samples
from tests.command_line import ROOT, scopeflow
from tests.real_parts import REQUIRED


def test_doctor_finds_this_installation_good(tmp_path: Path) -> None:
    ran = scopeflow("doctor", "--json", cwd=tmp_path)
    found = json.loads(ran.stdout)
    checks = {check["name"]: check for check in found["checks"]}
    assert {"python", "prefect", "numpy", "h264", "Prefect", "default store", "disk space"} <= set(checks)
    missing = [check for check in found["checks"] if check["status"] == "missing"]
    assert ran.returncode == (1 if missing else 0)
    assert all(check["advice"] for check in missing)
    assert checks["h264"]["status"] == "ok"
    if os.environ.get(REQUIRED) == "1":  # elsewhere a package may have been left out, or a disk be full
        assert not missing


@pytest.mark.parametrize("endpoint", [None, "http://127.0.0.1:9"])
@pytest.mark.parametrize("given", ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"])
def test_half_a_credential_is_not_good(given: str, endpoint: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    from flows.cli_checks import _servers

    monkeypatch.setenv(given, "hush")
    if endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    (found,) = [finding for finding in _servers() if finding.name == "S3"]
    assert found.status == "missing"
    assert f"unset {given}" in found.advice
    assert "hush" not in str(found)


def test_doctor_tells_what_does_not_answer_and_no_secret(tmp_path: Path) -> None:
    closed = f"127.0.0.1:{free_port()}"
    ran = scopeflow(
        "doctor",
        cwd=tmp_path,
        COLUMNS="200",
        PREFECT_API_URL=f"http://me:sesame@{closed}/api",
        AWS_ENDPOINT_URL=f"http://me:sesame@{closed}",
        AWS_ACCESS_KEY_ID="open",
        AWS_SECRET_ACCESS_KEY="sesame",
    )
    assert ran.returncode == 1
    assert ran.stdout.count("No answer within 5 s") == 2
    assert "Needed and missing: 2" in ran.stdout
    assert "sesame" not in ran.stdout + ran.stderr


def test_doctor_does_not_import_the_heavy_libraries(tmp_path: Path) -> None:
    program = (
        "import sys; from flows.cli_checks import all_findings; all_findings(); "
        "print(*(sys.modules.keys() & {'torch', 'transformers', 'prefect', 'cv2'}))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert ran.stdout.strip() == ""


@pytest.mark.parametrize("damage", ["cut", "header", "nothing"])
def test_doctor_reads_the_models_header(tmp_path: Path, damage: str) -> None:
    from flows.cli_checks import _parameters

    header = json.dumps({"__metadata__": {}, "w": {"dtype": "F32", "shape": [3, 4], "data_offsets": [0, 48]}}).encode()
    data = len(header).to_bytes(8, "little") + header + bytes(48)
    file = tmp_path / "model.safetensors"
    if damage == "nothing":
        file.write_bytes(data)
        assert _parameters(file) == 12
        return
    file.write_bytes(data[:-7] if damage == "cut" else b"\xff" * 64)
    with pytest.raises(ConfigurationError, match=r"cut off|damaged"):
        _parameters(file)


@pytest.mark.parametrize("make", [samples.complete_report, samples.partial_report, samples.failed_report])
def test_summary_tells_outcome_account_and_places(make: Any) -> None:
    from flows.cli_summary import entry_of, summary

    report, _ = make()
    placed = report.model_copy(update={"report_html_uri": "file:///tmp/with%20space/report.html"})
    text = summary("clip.mp4", placed)
    assert text.startswith("clip.mp4: ")
    assert report.notice in text
    assert "/tmp/with space/report.html" in text
    assert "Time" in text
    if report.failures:
        assert "What to do" in text
    if report.answer:
        assert "0:00:00.040 to 0:01:03.120" in text
        assert "5,760 native → 2,850 pooled (51 % saved)" in text
    entry = entry_of("clip.mp4", placed)
    assert entry["report_html"] == "/tmp/with space/report.html"
    json.dumps(entry)


def test_hostile_model_text_cannot_steer_the_terminal() -> None:
    from flows.cli_summary import summary

    report, _ = samples.complete_report(texts=("\x1b[2J\x1b]0;title\x07 fine", "\u202eevil", "[bold]x[/bold]"))
    text = summary("clip.mp4", report)
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "\u202e" not in text
    assert "[bold]x[/bold]" in text


@pytest.mark.parametrize(
    ("profiles", "environment", "expected"),
    [
        ("", {}, None),
        ('active = "here"\n[profiles.here]\nPREFECT_API_URL = "http://h/api"', {}, "http://h/api"),
        ('active = "ephemeral"\n[profiles.ephemeral]\nPREFECT_SERVER_ALLOW_EPHEMERAL_MODE = "true"', {}, None),
        (
            'active = "a"\n[profiles.a]\n[profiles.b]\nPREFECT_API_URL = "http://b/api"',
            {"PREFECT_PROFILE": "b"},
            "http://b/api",
        ),
        ("not toml [", {}, None),
        (
            'active = "here"\n[profiles.here]\nPREFECT_API_URL = "http://h/api"',
            {"PREFECT_API_URL": "http://e"},
            "http://e",
        ),
    ],
)
def test_configured_prefect_server(
    profiles: str, environment: dict[str, str], expected: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flows.cli_prefect import configured_api

    (tmp_path / "profiles.toml").write_text(profiles)
    for name in ("PREFECT_API_URL", "PREFECT_PROFILE", "PREFECT_PROFILES_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path))
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    found = configured_api()
    assert (found[0] if found else None) == expected
