"""What a reader of the repository may rely on: documented commands exist, links lead somewhere, nothing odd is kept."""

import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tasks.records import errors
from tasks.records.specs import DecodeSpec, PoolSpec, PromptSpec, SelectionSpec

ROOT = Path(__file__).resolve().parent.parent
READMES = ("README.md", "README.zh-CN.md")
LARGEST_FILE_BYTES = 8_000_000
LONGEST_MODULE_LINES = 400

# Written in pieces, so that this file passes its own test.
HOST_PATHS = tuple("/" + name + "/" for name in ("work", "root", "home/[a-z]", "Users", "opt/wheels", "opt/pypi"))
REGISTRIES = tuple(
    r"\.".join(parts)
    for parts in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("download", "pytorch", "org"),
        ("registry", "npmjs"),
        ("deb", "debian", "org"),
        ("archive", "ubuntu", "com"),
    )
)
UNWANTED = re.compile(rf"(?<![\w.\]])(?:{'|'.join(HOST_PATHS)})|{'|'.join(REGISTRIES)}")


def tracked_files() -> list[Path]:
    """Files that git keeps, or would keep with the next ``git add``."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [path for name in listed.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def documents() -> list[Path]:
    return [path for path in tracked_files() if path.suffix == ".md"]


def without_fences(text: str) -> str:
    return re.sub(r"^ *```.*?^ *```", "", text, flags=re.MULTILINE | re.DOTALL)


def commands_in(text: str) -> Iterator[str]:
    """Yield the commands of every ```bash block: comments and prompts taken off, continued lines joined."""
    for block in re.findall(r"^ *```bash\n(.*?)^ *```", text, flags=re.MULTILINE | re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
                words.pop(0)
            if words:
                yield shlex.join(words)


def wrong_command(command: str, targets: set[str], main: click.Command) -> str | None:
    """Return what is wrong with a documented command of ours; None if nothing is, or it is not ours."""
    program, *words = shlex.split(command)
    if program == "make":
        unknown = [word for word in words if "=" not in word and not word.startswith("-") and word not in targets]
        return f"no target {unknown} in the Makefile" if unknown else None
    if Path(program).name != "scopeflow":
        return None
    current = main
    context = click.Context(current, info_name="scopeflow")
    for word in words:
        if isinstance(current, click.Group) and not word.startswith("-"):
            found = current.get_command(context, word)
            if found is None:
                return f"no command {word!r}"
            current, context = found, click.Context(found, info_name=word, parent=context)
        elif word.startswith("-"):
            known = {
                name
                for parameter in current.get_params(context)
                for name in (*parameter.opts, *parameter.secondary_opts)
            }
            if word.partition("=")[0] not in known:
                return f"{current.name} has no option {word}"
    return None


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))


@pytest.fixture(scope="module")
def main() -> click.Command:
    from flows.cli import main

    return main


def test_documented_commands_exist(main: click.Command) -> None:
    targets = make_targets()
    wrong = [
        f"{path.relative_to(ROOT)}: `{command}`: {fault}"
        for path in documents()
        for command in commands_in(path.read_text())
        if (fault := wrong_command(command, targets, main))
    ]
    assert not wrong, "\n" + "\n".join(wrong)


def test_an_invented_command_is_caught(main: click.Command) -> None:
    assert wrong_command("make coffee", {"demo"}, main)
    assert wrong_command("scopeflow brew", set(), main)
    assert wrong_command("scopeflow analyze x.mp4 --brew", set(), main)
    assert wrong_command("make demo MEDIA=x.mp4", {"demo"}, main) is None
    assert wrong_command("scopeflow analyze x.mp4 --json", set(), main) is None


def test_both_readmes_show_the_same_commands() -> None:
    english, chinese = (list(commands_in((ROOT / name).read_text())) for name in READMES)
    assert english
    assert [re.sub(r"[^\x00-\x7f]+", "", command) for command in chinese] == english


def test_both_readmes_have_the_same_shape() -> None:
    """Same headings by level, same tables by size, same pictures: a translation that fell behind shows here."""

    def shape(name: str) -> tuple[list[str], int, list[str]]:
        text = without_fences((ROOT / name).read_text())
        levels = re.findall(r"^(#+) ", text, flags=re.MULTILINE)
        return levels, len(re.findall(r"^\|", text, flags=re.MULTILINE)), re.findall(r"!\[[^]]*\]\(([^)]+)\)", text)

    assert shape(READMES[0]) == shape(READMES[1])


def anchors_of(path: Path) -> set[str]:
    """Anchors of a page's headings, by the rule that code hosts use."""
    headings = re.findall(r"^#+ +(.+?) *$", without_fences(path.read_text()), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_in_documents_resolve() -> None:
    broken = []
    for path in documents():
        for target in re.findall(r"\]\(<?([^)>\s]+)>?\)", without_fences(path.read_text())):
            if re.match(r"[a-z]+:", target):
                continue
            name, _, anchor = target.partition("#")
            there = (path.parent / name).resolve() if name else path
            if not there.exists() or (anchor and there.suffix == ".md" and anchor not in anchors_of(there)):
                broken.append(f"{path.relative_to(ROOT)}: {target}")
    assert not broken, "\n" + "\n".join(broken)


def test_no_large_file() -> None:
    large = [str(path.relative_to(ROOT)) for path in tracked_files() if path.stat().st_size > LARGEST_FILE_BYTES]
    assert not large


def test_no_path_of_a_machine_and_no_registry_host() -> None:
    found = []
    for path in tracked_files():
        data = path.read_bytes()
        if b"\0" in data[:8192] or path.name == "LICENSE":
            continue
        for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
            if hit := UNWANTED.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {hit.group()}")
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize("text", ["see /" + "work/shared", "cd /" + "root/x", "https://py" + "pi.org/simple"])
def test_an_unwanted_path_is_caught(text: str) -> None:
    assert UNWANTED.search(text)


@pytest.mark.parametrize("text", ["frames/work/x.webp", "docs/home/index.md", "network/"])
def test_an_innocent_path_passes(text: str) -> None:
    assert not UNWANTED.search(text)


def test_modules_stay_short() -> None:
    long = [
        f"{path.relative_to(ROOT)}: {lines} lines"
        for path in tracked_files()
        if path.suffix == ".py" and (lines := len(path.read_text().splitlines())) > LONGEST_MODULE_LINES
    ]
    assert not long, "\n" + "\n".join(long)


def test_the_analysts_tables_name_every_setting_with_its_default() -> None:
    text = (ROOT / "docs/analyst.md").read_text()
    documented = dict(re.findall(r"^\| `([a-z_]+)`(?: \(`--[a-z-]+`\))? \| ([^|]+?) \|", text, flags=re.MULTILINE))
    for spec in (SelectionSpec, PoolSpec, PromptSpec, DecodeSpec):
        for name, setting in spec.model_fields.items():
            if name in ("schema_version", "algorithm_version"):
                continue
            written, default = documented.get(name, "(not documented)"), setting.default
            if isinstance(default, int | float):
                assert float(written) == default, f"{spec.__name__}.{name} is {default}, documented as {written}"
            else:
                assert written == ("none" if default is None else default), f"{spec.__name__}.{name}"


def test_the_analysts_table_explains_every_cause() -> None:
    text = (ROOT / "docs/analyst.md").read_text()
    causes = {
        kind.__name__ for base in (errors.TransientError, errors.PermanentError) for kind in base.__subclasses__()
    }
    assert causes <= set(re.findall(r"^\| `(\w+)` \|", text, flags=re.MULTILINE))


def test_changelog_names_this_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    text = (ROOT / "CHANGELOG.md").read_text()
    assert re.search(r"^## \[Unreleased\]", text, flags=re.MULTILINE)
    assert re.search(rf"^## \[{re.escape(version)}\]", text, flags=re.MULTILINE)


def test_every_requirement_is_pinned() -> None:
    lines = (ROOT / "requirements/constraints.txt").read_text().splitlines()
    pins = {}
    for line in lines:
        if not line.startswith("#"):
            pin = re.fullmatch(r"([a-z0-9.-]+)==([^\s;+]+)", line)
            assert pin, f"not a plain pin: {line}"
            pins[pin[1].replace(".", "-")] = pin[2]
    assert not [name for name in pins if name.startswith(("nvidia-", "cuda-", "triton"))], (
        "a CPU install must not pull CUDA"
    )
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for requirement in (*project["dependencies"], *project["optional-dependencies"]["dev"]):
        name = re.match(r"[A-Za-z0-9._-]+", requirement)
        assert name
        assert re.sub(r"[-_.]+", "-", name[0]).lower() in pins, (
            f"{requirement} is not in the constraints; run `make constraints`"
        )


def test_shell_scripts_stop_at_the_first_error() -> None:
    for path in tracked_files():
        if path.suffix == ".sh" or path == ROOT / ".ci/run":
            text = path.read_text()
            assert text.startswith("#!/usr/bin/env bash\n"), path
            assert re.search(r"^set -e?uo pipefail$", text, flags=re.MULTILINE), path
            assert path.stat().st_mode & 0o111, f"{path} is not executable"
