import contextlib
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from blocks.access import S3Config
from blocks.lifeline import free_port
from flows.cli import main
from flows.cli_common import error_facts
from tasks.records.errors import MediaNotFound
from tests.command_line import ROOT, scopeflow

COMMANDS = (("analyze",), ("keyframes",), ("doctor",), ("serve",), ("serve", "s3"))


def children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_help_answers_in_under_half_a_second(tmp_path: Path) -> None:
    """CPU time, not wall time: the machine may be busy with other things."""
    spent = []
    for _ in range(5):
        before = children_cpu_s()
        assert scopeflow("--help", cwd=tmp_path).returncode == 0
        spent.append(children_cpu_s() - before)
    assert statistics.median(spent) < 0.5


@pytest.mark.parametrize("command", [(), *COMMANDS])
def test_help_teaches_by_example(command: tuple[str, ...]) -> None:
    ran = CliRunner().invoke(main, [*command, "--help"])
    assert ran.exit_code == 0
    if command != ("serve",):
        assert f"scopeflow {' '.join(command)}" in ran.output
        assert "Examples:" in ran.output


@pytest.mark.parametrize("command", [command for command in COMMANDS if command != ("serve",)])
def test_every_command_speaks_json(command: tuple[str, ...]) -> None:
    assert "--json" in CliRunner().invoke(main, [*command, "--help"]).output


def test_foreign_words_are_not_repeated() -> None:
    facts = error_facts(KeyError("DOE^JANE 1970-01-01"))
    assert "KeyError" in facts["message"]
    assert facts["unexpected"]
    assert "DOE" not in json.dumps(facts)
    assert error_facts(MediaNotFound("nothing there"))["message"] == "nothing there"


def test_version() -> None:
    from importlib.metadata import version

    assert CliRunner().invoke(main, ["--version"]).output == f"scopeflow {version('scopeflow')}\n"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["analyze"], "Missing argument 'MEDIA...'"),
        (["brew"], "No such command 'brew'"),
        (["analyze", "x.mp4", "--no-pool", "--pool-threshold", "2"], "exclude each other"),
        (["analyze", "x.mp4", "--tile-ssim", "1.5"], "'--tile-ssim': 1.5: input should be less than 1"),
        (["analyze", "x.mp4", "--max-keyframes", "0"], "'--max-keyframes'"),
        (["analyze", "x.mp4", "--max-gap", "-1"], "'--max-gap'"),
        (["analyze", "x.mp4", "--max-output-tokens", "0"], "'--max-output-tokens'"),
        (["analyze", "x.mp4", "--pool-threshold", "-2"], "'--pool-threshold'"),
        (["analyze", "x.mp4", "--question", ""], "'--question'"),
        (["analyze", "x.mp4", "--json", "--max-keyframes", "many"], "'many' is not a valid integer"),
        (["analyze", " "], "one of MEDIA is empty"),
        (["keyframes", "x.mp4"], "Missing option '--out'"),
        (["keyframes", "x.mp4", "--out", "frames", "--tile-ssim", "0"], "'--tile-ssim'"),
        (["serve", "s3", "--port", "70000"], "'--port'"),
    ],
)
def test_wrong_usage_is_told_in_a_line(arguments: list[str], says: str, tmp_path: Path) -> None:
    with contextlib.chdir(tmp_path):
        ran = CliRunner().invoke(main, arguments)
    assert ran.exit_code == 2
    assert says in ran.stderr
    assert ran.stdout == ""
    assert "Traceback" not in ran.stderr


def test_a_missing_file_is_told_at_once_and_nothing_is_started(tmp_path: Path) -> None:
    before = children_cpu_s()
    ran = scopeflow("analyze", "nosuch.mp4", "https://example.org/x.mp4", "--json", cwd=tmp_path)
    assert children_cpu_s() - before < 3
    assert not list(tmp_path.iterdir())
    assert ran.returncode == 1
    found = json.loads(ran.stdout)
    assert found["outcome"] == "failed"
    assert [entry["error"]["cause"] for entry in found["reports"]] == ["MediaNotFound", "UnsupportedMedia"]
    assert [entry["report"]["failures"][0]["stage"] for entry in found["reports"]] == ["stream-pull"] * 2
    assert "2 of 2 media did not complete" in ran.stderr
    assert "Check the spelling" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_server_that_does_not_answer_is_told_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "x.mp4").write_bytes(b"x")
    address = f"http://me:sesame@127.0.0.1:{free_port()}/api"
    ran = scopeflow("analyze", "x.mp4", "--json", cwd=tmp_path, PREFECT_API_URL=address)
    assert ran.returncode == 1
    found = json.loads(ran.stdout)
    assert found["error"]["cause"] == "ConfigurationError"
    assert "No Prefect server answers" in found["error"]["message"]
    assert "make stack" in ran.stderr
    assert "sesame" not in ran.stdout + ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize("store", ["ftp://there", "s3://", "x.mp4/results"])
def test_a_store_that_cannot_be_one_is_wrong_usage(store: str, tmp_path: Path) -> None:
    (tmp_path / "x.mp4").write_bytes(b"x")
    ran = scopeflow("analyze", "x.mp4", "--store", store, "--json", cwd=tmp_path)
    assert ran.returncode == 2, ran.stderr
    assert ran.stdout == ""
    assert "Traceback" not in ran.stderr


def test_a_missing_bucket_is_told_before_anything_runs(tmp_path: Path, rclone_server: S3Config) -> None:
    (tmp_path / "x.mp4").write_bytes(b"x")
    assert rclone_server.secret_access_key
    ran = scopeflow(
        *("analyze", "x.mp4", "--store", "s3://no-such-bucket/results", "--json"),
        cwd=tmp_path,
        AWS_ENDPOINT_URL=str(rclone_server.endpoint_url),
        AWS_ACCESS_KEY_ID=str(rclone_server.access_key_id),
        AWS_SECRET_ACCESS_KEY=rclone_server.secret_access_key.get_secret_value(),
    )
    assert ran.returncode == 1, ran.stderr
    assert json.loads(ran.stdout)["error"]["cause"] in ("ConfigurationError", "MediaNotFound")
    assert "no-such-bucket" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_debug_shows_where_it_happened(tmp_path: Path) -> None:
    (tmp_path / "x.mp4").write_bytes(b"x")
    address = f"http://127.0.0.1:{free_port()}/api"
    ran = scopeflow("--debug", "analyze", "x.mp4", cwd=tmp_path, PREFECT_API_URL=address)
    assert ran.returncode == 1
    assert "Traceback" in ran.stderr
    assert "--debug" not in CliRunner().invoke(main, ["--help"]).output


def test_keyframes_into_a_folder(clip: Path, tmp_path: Path) -> None:
    foreign = tmp_path / "frames" / "0001_mine.txt"
    foreign.parent.mkdir()
    foreign.write_text("kept")
    ran = scopeflow("keyframes", str(clip), "--out", "frames", "--json", cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    kept = found["keyframes"]["keyframes"]
    assert len(kept) >= 2
    assert [frame["pts_ns"] for frame in kept] == sorted(frame["pts_ns"] for frame in kept)
    folder = tmp_path / "frames"
    assert all((folder / frame["image_uri"]).stat().st_size > 500 for frame in kept)
    assert json.loads((folder / "keyframes.json").read_text()) == found
    assert (folder / "sheet.webp").exists()
    assert (folder / "signals.parquet").exists()
    again = scopeflow("keyframes", str(clip), "--out", "frames", "--max-keyframes", "1", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert "1 keyframe of" in again.stdout
    assert len(list(folder.glob("*_*.webp"))) == 1
    assert foreign.read_text() == "kept"
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]


def test_keyframes_of_no_picture_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "notes.mp4").write_text("just some words, whatever the name says\n" * 50)
    ran = scopeflow("keyframes", "notes.mp4", "--out", "frames", "--json", cwd=tmp_path)
    assert ran.returncode == 1
    assert json.loads(ran.stdout)["error"]["cause"] == "UnsupportedMedia"
    assert "notes.mp4:" in ran.stderr
    assert "renaming the file changes nothing" in ran.stderr
    assert "Traceback" not in ran.stderr
    assert not list((tmp_path / "frames").iterdir())


@contextlib.contextmanager
def serving(cwd: Path, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        [sys.executable, "-m", "flows.cli", "serve", "s3", *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def test_serve_s3_until_ctrl_c(tmp_path: Path) -> None:
    (tmp_path / "media" / "archive").mkdir(parents=True)
    with serving(tmp_path, "media", "--bucket", "archive", "--json") as process:
        assert process.stdout
        assert process.stderr
        text = ""
        while not text.endswith("\n}\n"):
            line = process.stdout.readline()
            assert line, process.stderr.read()
            text += line
        environment = json.loads(text)["environment"]
        assert set(environment) == {"AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}
        with pytest.raises(urllib.error.HTTPError) as refused:  # it answers, and wants a signature
            urllib.request.urlopen(environment["AWS_ENDPOINT_URL"] + "/archive", timeout=10)
        assert refused.value.code in (400, 403)
        refused.value.close()
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 130
        assert "Stopped." in process.stderr.read()


def test_ctrl_c_in_the_middle_of_work_is_a_plain_line(clip: Path, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "flows.cli", "keyframes", str(clip), "--out", "frames"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr
    line = process.stderr.readline()
    assert "[1/7]" in line
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Stopped." in err
    assert "Traceback" not in err
    assert out == ""
    assert not list((tmp_path / "frames").iterdir())


def test_what_libraries_and_children_print_never_reaches_the_data(tmp_path: Path) -> None:
    program = (
        "import subprocess, sys\n"
        "from flows.cli_common import only_results_on_stdout, print_json\n"
        "with only_results_on_stdout() as results:\n"
        "    print('library')\n"
        "    subprocess.run(['echo', 'child'])\n"
        "    results.write('answer\\n')\n"
        "print_json({'a': 1})\n"
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
    assert ran.stdout == 'answer\n{\n  "a": 1\n}\n'
    assert ran.stderr.split() == ["library", "child"]
