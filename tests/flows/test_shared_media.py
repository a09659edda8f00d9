"""Every real file of the shared media through the command a user types, with the outcome that its manifest implies."""

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.real_parts import require

REPOSITORY = Path(__file__).parents[2]
MEDIA = REPOSITORY.parent / "shared" / "media"
HAS_PICTURES = ("yes", "via PyAV only")
# Decodes, but the medium has a fault that a reader must know of.
PARTIAL: set[str] = set()
# The command takes the best of several video streams, the manifest counts the first.
OTHER_STREAM = {"video/nasa_13013.mp4"}


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_every_file_ends_as_its_manifest_row_implies(prefect_server: str, tmp_path: Path) -> None:
    require(MEDIA.is_dir(), "no shared media beside the repository; this test needs the real files")
    with (MEDIA / "manifest.csv").open(newline="", encoding="utf-8") as table:
        rows = list(csv.DictReader(table))
    assert len(rows) >= 81
    ran = subprocess.run(
        [sys.executable, "-m", "flows.cli", "analyze", *(str(MEDIA / row["file"]) for row in rows)]
        + ["--store", str(tmp_path / "store"), "--json"],
        cwd=REPOSITORY,
        capture_output=True,
        timeout=1450,
        check=False,
    )
    assert ran.returncode == 1
    assert b"Traceback" not in ran.stderr
    entries = json.loads(ran.stdout)["reports"]
    assert [entry["medium"] for entry in entries] == [str(MEDIA / row["file"]) for row in rows]
    wrong = [fault for row, entry in zip(rows, entries, strict=True) if (fault := _fault(row, entry["report"]))]
    assert not wrong, "\n".join(wrong)


def _fault(row: dict[str, str], report: dict[str, Any]) -> str | None:
    name, outcome = row["file"], report["outcome"]
    decodes = row["expected_decodes"].startswith(HAS_PICTURES) and not name.startswith("audio/")
    expected = "partial" if name in PARTIAL else "complete" if decodes else "failed"
    if outcome != expected:
        return f"{name}: {outcome}, not {expected}: {report['failures']} {report['warnings']}"
    if not decodes:
        failures = report["failures"]
        return None if len(failures) == 1 and failures[0]["message"] else f"{name}: {failures}"
    frames = report["signals"]["frames_delivered"]
    if row["frames"] and name not in OTHER_STREAM and frames != int(row["frames"]):
        return f"{name}: {frames} frames, not {row['frames']}"
    if not report["answer"]["text"] and report["answer"]["outcome"] != "refused":
        return f"{name}: no answer"
    return None
