"""Child processes: answers, errors, deadlines, memory, and no orphans."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from blocks.child import ChildWorker, run_child
from tasks.records.errors import (
    BudgetExceeded,
    CorruptMedia,
    EndpointTimeout,
    MediaChanged,
    ScopeFlowError,
    TransientError,
)

HERE = "tests.blocks.test_child"


def echo(request: dict[str, Any], emit: Any) -> dict[str, Any]:
    emit({"done": 1, "total": 2, "unit": "steps"})
    print("noise on standard output")
    return {"got": request, "pid": os.getpid()}


def fail_known(request: dict[str, Any], emit: Any) -> dict[str, Any]:
    raise MediaChanged("the object changed")


def fail_foreign(request: dict[str, Any], emit: Any) -> dict[str, Any]:
    raise RuntimeError("PATIENT^NAME in a foreign message")


def die(request: dict[str, Any], emit: Any) -> dict[str, Any]:
    os.kill(os.getpid(), signal.SIGSEGV)
    return {}


def killed(request: dict[str, Any], emit: Any) -> dict[str, Any]:
    os.kill(os.getpid(), signal.SIGKILL)
    return {}


def hang(request: dict[str, Any], emit: Any) -> dict[str, Any]:
    grandchild = subprocess.Popen(["sleep", "600"])
    emit({"pids": [os.getpid(), grandchild.pid]})
    time.sleep(600)
    return {}


def swell(request: dict[str, Any], emit: Any) -> dict[str, Any]:
    held = bytearray(400_000_000)
    time.sleep(60)
    return {"held": len(held)}


@pytest.fixture(autouse=True)
def _children_find_this_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))


def test_answers_progress_and_noise() -> None:
    seen: list[dict[str, Any]] = []
    answer = run_child(f"{HERE}:echo", {"a": "ü"}, timeout_s=60, on_progress=seen.append)
    assert answer["got"] == {"a": "ü"}
    assert 5e6 < answer["peak_rss_bytes"] < 500e6
    assert seen == [{"done": 1, "total": 2, "unit": "steps"}]


def test_one_child_answers_many_calls_and_is_replaced_after_a_failure() -> None:
    with ChildWorker() as worker:
        first = worker.call(f"{HERE}:echo", {}, timeout_s=60)["pid"]
        assert worker.call(f"{HERE}:echo", {}, timeout_s=60)["pid"] == first
        with pytest.raises(MediaChanged, match="the object changed"):
            worker.call(f"{HERE}:fail_known", {}, timeout_s=60)
        assert worker.call(f"{HERE}:echo", {}, timeout_s=60)["pid"] != first


def test_a_foreign_error_leaves_the_child_by_its_class_alone() -> None:
    with pytest.raises(ScopeFlowError) as raised:
        run_child(f"{HERE}:fail_foreign", {}, timeout_s=60, crash_error=CorruptMedia)
    assert type(raised.value) is ScopeFlowError, "our fault is not the medium's"
    assert "RuntimeError at test_child.py:" in raised.value.message
    assert "PATIENT" not in raised.value.message


def test_a_crash_is_the_callers_kind_of_error() -> None:
    with pytest.raises(CorruptMedia, match="SIGSEGV"):
        run_child(f"{HERE}:die", {}, timeout_s=60, crash_error=CorruptMedia)


def test_a_kill_from_outside_is_not_the_mediums_fault() -> None:
    with pytest.raises(TransientError, match="killed from outside"):
        run_child(f"{HERE}:killed", {}, timeout_s=60, crash_error=CorruptMedia)


def test_the_deadline_kills_the_whole_group() -> None:
    pids: list[int] = []
    began = time.monotonic()
    with pytest.raises(EndpointTimeout, match="no result within 6 s"):
        run_child(f"{HERE}:hang", {}, timeout_s=6, on_progress=lambda p: pids.extend(p["pids"]))
    assert time.monotonic() - began < 30
    assert len(pids) == 2
    _expect_gone(pids)


def test_memory_over_the_limit_ends_the_child() -> None:
    with pytest.raises(BudgetExceeded, match="MB of memory"):
        run_child(f"{HERE}:swell", {}, timeout_s=60, max_rss_bytes=300_000_000)


def test_children_end_when_their_parent_is_killed() -> None:
    code = (
        "import sys; from blocks.child import run_child\n"
        f"run_child('{HERE}:hang', {{}}, timeout_s=600, on_progress=lambda p: print(p['pids'], flush=True))"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pids = json.loads(parent.stdout.readline())
        parent.send_signal(signal.SIGKILL)
        parent.wait(timeout=30)
    _expect_gone(pids)


def test_an_unknown_cause_is_still_an_error_of_ours() -> None:
    with pytest.raises(ScopeFlowError):
        run_child("tests.blocks.no_such_module:f", {}, timeout_s=60)


def _expect_gone(pids: list[int]) -> None:
    deadline = time.monotonic() + 15
    while time.monotonic() < deadline:
        alive = [p for p in pids if psutil.pid_exists(p) and psutil.Process(p).status() != psutil.STATUS_ZOMBIE]
        if not alive:
            return
        time.sleep(0.1)
    raise AssertionError(f"still running: {alive}")
