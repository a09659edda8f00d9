"""The run stands in the Prefect UI, looked at with a real browser that reaches nothing but this machine."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect, sync_playwright

from tasks.records.report import MediaReport
from tests.flows.test_analyze_media import STAGES, analyse
from tests.real_parts import require

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
WAIT_MS = 90_000


@pytest.fixture(scope="module")
def report(prefect_server: str, clip: Path, tmp_path_factory: pytest.TempPathFactory) -> MediaReport:
    from blocks.media_store import LocalMediaStore

    found = analyse(clip, LocalMediaStore(root=str(tmp_path_factory.mktemp("ui") / "store")))
    assert found.outcome == "complete", found.failures
    return found


@pytest.fixture
def page() -> Iterator[Page]:
    require(CHROMIUM is not None, "no Chromium; install it with `apt-get install chromium`")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=CHROMIUM,
            args=["--no-sandbox", "--disable-gpu", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"],
        )
        opened = browser.new_page(viewport={"width": 1400, "height": 1100})
        opened.set_default_timeout(WAIT_MS)
        yield opened
        browser.close()


def test_the_run_its_seven_tasks_and_its_artifacts_are_there(page: Page, report: MediaReport) -> None:
    assert report.provenance.flow_run_url is not None
    page.goto(report.provenance.flow_run_url)
    expect(page.get_by_text("Completed").first).to_be_visible(timeout=WAIT_MS)
    page.get_by_text("Task Runs", exact=True).click()
    for stage in STAGES:
        expect(page.get_by_text(stage).last).to_be_attached(timeout=WAIT_MS)

    page.get_by_text("Artifacts", exact=True).last.click()
    for artifact in ("answer", "token-account", "contact-sheet", "decode-progress"):
        expect(page.get_by_text(artifact).first).to_be_attached(timeout=WAIT_MS)

    page.get_by_text("contact-sheet").last.click()
    picture = page.locator("img[src^='data:image/webp']").first
    expect(picture).to_be_visible(timeout=WAIT_MS)
    assert picture.evaluate("image => image.complete && image.naturalWidth") >= 480


def test_the_answer_is_readable_in_the_ui(page: Page, report: MediaReport) -> None:
    assert report.answer is not None
    page.goto(report.provenance.flow_run_url or "")
    page.get_by_text("Artifacts", exact=True).last.click()
    page.get_by_text("answer", exact=True).last.click()
    first_line = report.answer.text.splitlines()[0]
    expect(page.get_by_text(first_line).first).to_be_visible(timeout=WAIT_MS)
    expect(page.get_by_text("Not for clinical use").first).to_be_visible(timeout=WAIT_MS)
