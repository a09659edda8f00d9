"""The layering of docs/architecture.md, held by a walk over every import statement.

deployments ⇢ (by deployment name) flows → tasks → {algorithms, blocks} → records
"""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("flows", "tasks", "blocks", "deployments", "benchmarks")
REMOTE = ("boto3", "botocore", "aiobotocore", "s3fs", "httpx", "openai", "urllib.request")
PREFECT = ("prefect", "prefect_aws")
IMPURE = ("time", "datetime", "socket", "ssl", "http", "requests", "aiohttp", "subprocess")
FLOWS = ("flows",)
TASK_VERBS = ("tasks",)  # what is left of tasks once records and algorithms are allowed by name

# Imported by the model server's plugin, in another environment that has only these libraries.
POOLING = ("tasks.algorithms.pooling", "tasks.records.pooling", "tasks.records.base")
POOLING_LIBRARIES = ("numpy", "torch", "pydantic")


@dataclass(frozen=True)
class Rule:
    """What the modules under ``where`` may import.

    ``only``: nothing outside these and the standard library. ``never``: these not, unless named in ``except_for``.
    """

    where: tuple[str, ...]
    because: str
    never: tuple[str, ...] = ()
    except_for: tuple[str, ...] = ()
    only: tuple[str, ...] | None = None


RULES = (
    Rule(("tasks.records",), "records are nouns", only=("pydantic", "numpy", "tasks.records")),
    Rule(
        ("tasks.algorithms",),
        "algorithms are pure: no Prefect, no network, no clock, no processes",
        never=(*PREFECT, *REMOTE, *IMPURE, "blocks", *FLOWS, "deployments", *TASK_VERBS),
        except_for=("tasks.records", "tasks.algorithms"),
    ),
    Rule(
        ("tasks",),
        "tasks reach the outside through a block and are run by flows",
        never=(*REMOTE, *FLOWS, "deployments"),
    ),
    Rule(
        ("blocks",),
        "blocks know records and pure functions, not who calls them",
        never=(*FLOWS, *TASK_VERBS, "deployments"),
        except_for=("tasks.records", "tasks.algorithms"),
    ),
    Rule(("flows",), "flows compose tasks; the outside is behind blocks", never=(*REMOTE, "deployments")),
    Rule(
        ("deployments",),
        "deployments name flows by their deployment, and use blocks, records and algorithms",
        never=(*REMOTE, *FLOWS, *TASK_VERBS),
        except_for=("tasks.records", "tasks.algorithms"),
    ),
    Rule(POOLING, "the model server's plugin imports it", only=(*POOLING_LIBRARIES, *POOLING)),
)


def is_under(name: str, parents: tuple[str, ...]) -> bool:
    """Tell whether a dotted name is one of ``parents`` or lies below one."""
    return any(name == parent or name.startswith(f"{parent}.") for parent in parents)


def imports_of(source: str, module: str) -> Iterator[tuple[int, str]]:
    """Yield (line, dotted name) of every import, also inside functions, and of ``import_module("…")``."""
    package = module.rpartition(".")[0]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")
                base = ".".join([*above[: len(above) - node.level + 1], *filter(None, [base])])
            for alias in node.names:
                yield node.lineno, f"{base}.{alias.name}"
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = ast.unparse(node.func).rpartition(".")[2]
            if called in ("import_module", "__import__") and isinstance(node.args[0].value, str):
                yield node.lineno, node.args[0].value


def violations(source: str, module: str) -> list[str]:
    """Return what a module imports against the rules."""
    found = []
    for rule in RULES:
        if not is_under(module, rule.where):
            continue
        for line, name in imports_of(source, module):
            if rule.only is not None:
                is_wrong = name.split(".")[0] not in sys.stdlib_module_names and not is_under(name, rule.only)
            else:
                is_wrong = is_under(name, rule.never) and not is_under(name, rule.except_for)
            if is_wrong:
                found.append(f"{module}:{line} imports {name}: {rule.because}")
    return found


def modules() -> Iterator[tuple[str, Path]]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def test_every_import_follows_the_arrows() -> None:
    found = [wrong for module, path in modules() for wrong in violations(path.read_text(), module)]
    assert not found, "\n" + "\n".join(found)


def test_the_walk_sees_the_house() -> None:
    seen = {module for module, _ in modules()}
    assert {"tasks.records.base", "tasks.algorithms.pooling", "blocks.access", "flows"} <= seen


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("tasks.records.media", "import prefect"),
        ("tasks.records.media", "import tasks.algorithms.pooling"),
        ("tasks.records.media", "from pandas import DataFrame"),
        ("tasks.algorithms.flat", "def f():\n    from prefect import get_run_logger"),
        ("tasks.algorithms.flat", "from blocks.access import StoreAccess"),
        ("tasks.algorithms.flat", "import time"),
        ("tasks.algorithms.flat", "from tasks import decode"),
        ("tasks.decode", "import boto3"),
        ("tasks.decode", "from importlib import import_module\nimport_module('httpx')"),
        ("tasks.decode", "from flows.analyze_media import analyze_media"),
        ("blocks.media_store", "from tasks.decode import decode"),
        ("blocks.media_store", "from flows import cli"),
        ("flows.analyze_media", "import s3fs"),
        ("flows.analyze_media", "from deployments import demo"),
        ("flows.cli", "from deployments import demo"),
        ("flows.cli_prefect", "import urllib.request"),
        ("deployments.demo", "from flows.analyze_media import analyze_media"),
        ("deployments.demo", "import openai"),
        ("tasks.algorithms.pooling", "import cv2"),
        ("tasks.algorithms.pooling", "from tasks.records import media"),
        ("tasks.algorithms.pooling", "from ..records.report import MediaReport"),
    ],
)
def test_a_wrong_arrow_is_caught(module: str, source: str) -> None:
    assert violations(source, module)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("tasks.records.media", "import hashlib\nimport numpy as np\nfrom pydantic import Field"),
        ("tasks.algorithms.flat", "import cv2\nimport numpy\nfrom tasks.records.specs import PoolSpec"),
        ("tasks.decode", "from prefect import task\nfrom blocks.access import StoreAccess\nimport tasks.artifacts"),
        ("blocks.media_store", "import boto3, s3fs\nfrom tasks.records.errors import MediaNotFound"),
        ("blocks.embedded_vlm", "from tasks.algorithms.pooling import apply"),
        ("flows.analyze_media", "from prefect import flow\nfrom tasks.decode import decode"),
        ("deployments.demo", "from blocks.media_store import S3MediaStore\nfrom tasks.records.media import MediaRef"),
        ("tasks.algorithms.pooling", "import numpy as np\nfrom tasks.records.pooling import PoolPlan"),
    ],
)
def test_a_right_arrow_passes(module: str, source: str) -> None:
    assert not violations(source, module)


def test_every_exception_is_made_use_of() -> None:
    imports = {module: [name for _, name in imports_of(path.read_text(), module)] for module, path in modules()}
    unused = [
        f"{rule.where}: {exception}"
        for rule in RULES
        for exception in rule.except_for
        if not any(
            is_under(name, (exception,))
            for module, names in imports.items()
            if is_under(module, rule.where)
            for name in names
        )
    ]
    assert not unused


def test_only_flows_and_tests_import_flows() -> None:
    found = [
        f"{module}:{line}"
        for module, path in modules()
        if not is_under(module, FLOWS)
        for line, name in imports_of(path.read_text(), module)
        if is_under(name, FLOWS)
    ]
    assert not found


@pytest.mark.parametrize("package", ["tasks", "blocks"])
def test_package_file_is_empty(package: str) -> None:
    """Importing one module must not bring its neighbours, and Prefect with them, along."""
    assert not (ROOT / package / "__init__.py").read_text().strip()


def test_no_flow_file_shadows_the_standard_library() -> None:
    """Prefect's loader puts the entrypoint's folder first on ``sys.path``."""
    names = {path.stem for path in (ROOT / "flows").iterdir()} - {"__init__", "__pycache__"}
    assert not names & sys.stdlib_module_names


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        *((module, ("prefect", "pandas", "cv2", "av", "transformers", *REMOTE)) for module in POOLING),
        ("blocks.access", ("prefect", "torch", "cv2", *REMOTE)),
    ],
)
def test_import_brings_nothing_heavy(module: str, absent: tuple[str, ...]) -> None:
    program = f"import sys, {module}; print(*(sys.modules.keys() & set(sys.argv[1:])))"
    ran = subprocess.run(
        [sys.executable, "-c", program, *absent],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert ran.stdout.split() == []


def test_the_command_line_answers_before_it_loads() -> None:
    """``scopeflow --help`` in under half a second: nothing heavy is imported at the top of a command-line module."""
    heavy = ("prefect", "torch", "cv2", "transformers", "pandas", "numpy", "av", "skimage", *REMOTE)
    for path in sorted((ROOT / "flows").glob("cli*.py")):
        top = ast.parse(path.read_text())
        top.body = [node for node in top.body if isinstance(node, ast.Import | ast.ImportFrom)]
        found = [name for _, name in imports_of(ast.unparse(top), f"flows.{path.stem}") if is_under(name, heavy)]
        assert not found, f"{path.name} imports {found} at its top"
