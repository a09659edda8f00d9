import base64
import re
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from tasks.algorithms.report_html import SHOWN_KEYFRAMES, pictures_wanted, render_report
from tasks.algorithms.report_timeline import timeline_of
from tasks.records.keyframes import Keyframe, KeyframeReason
from tasks.records.report import NOT_FOR_CLINICAL_USE, MediaReport
from tasks.records.signals import Gap
from tests import samples
from tests.real_parts import require

CHROMIUM = Path("/usr/bin/chromium")
SAMPLES: dict[str, Callable[[], tuple[MediaReport, dict[str, bytes]]]] = {
    "complete": samples.complete_report,
    "partial": samples.partial_report,
    "failed": samples.failed_report,
    "still": samples.still_report,
}


class Page(HTMLParser):
    """What a browser would be told to load, where links lead, and what ids there are."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []
        self.tags: list[str] = []
        self.handlers: list[str] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if name in ("src", "srcset", "data", "poster") or (name == "href" and tag == "link"):
                self.loads.append(value or "")
            elif name in ("href", "action", "formaction", "xlink:href"):
                self.links.append(value or "")
            elif name == "id":
                self.ids.append(value or "")
            elif name.startswith("on"):
                self.handlers.append(name)

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return {name: render_report(*make()) for name, make in SAMPLES.items()}


@pytest.mark.parametrize("name", SAMPLES)
def test_is_self_contained(pages: dict[str, str], name: str) -> None:
    page = Page(pages[name])
    assert all(address.startswith("data:image/") for address in page.loads)
    assert not {"script", "link", "iframe", "object", "embed", "base"} & set(page.tags)
    assert not page.handlers
    assert "url(" not in re.sub(r"url\(#hatch\)", "", pages[name])
    assert "@import" not in pages[name]
    outward = [link for link in page.links if not link.startswith("#")]
    report = SAMPLES[name]()[0]
    assert set(outward) <= {report.provenance.flow_run_url}


@pytest.mark.parametrize("name", SAMPLES)
def test_every_inner_link_leads_somewhere(pages: dict[str, str], name: str) -> None:
    page = Page(pages[name])
    assert len(page.ids) == len(set(page.ids))
    assert {link[1:] for link in page.links if link.startswith("#")} <= set(page.ids)


@pytest.mark.parametrize("name", SAMPLES)
def test_says_what_it_is_not_for(pages: dict[str, str], name: str) -> None:
    assert pages[name].count(NOT_FOR_CLINICAL_USE) >= 2
    assert (samples.NOTICE in pages[name]) == (name != "failed")


@pytest.mark.parametrize("name", SAMPLES)
def test_never_shows_the_address_of_the_medium(pages: dict[str, str], name: str) -> None:
    for secret in (samples.SECRET_NAME, "Mustermann", "s3://archive"):
        assert secret not in pages[name]
    assert samples.MEDIA_ID in pages[name]
    assert "CASE-0417" in pages[name]


def test_messages_stand_as_they_are_whatever_the_file_is_called() -> None:
    report, _ = samples.failed_report()
    failure = report.failures[0].model_copy(update={"message": "CASE-0417: its pixel data is cut off"})
    changed = {"request": samples.request(uri="s3://archive/data"), "failures": (failure,)}
    assert "CASE-0417: its pixel data is cut off" in render_report(report.model_copy(update=changed), {})


def test_gaps_without_times_are_named_by_frame_and_not_drawn() -> None:
    report, pictures = samples.complete_report()
    assert report.signals
    gap = Gap(start_frame=1, end_frame=1, cause="damaged frames")
    changed = report.model_copy(update={"signals": report.signals.model_copy(update={"gaps": (gap,)})})
    assert "Frame 2 could not be decoded (damaged frames)." in render_report(changed, pictures)
    line = timeline_of(changed)
    assert line
    assert line.gaps == ()


def test_shows_answers_tied_to_their_times_and_frames(pages: dict[str, str]) -> None:
    page = pages["complete"]
    for text in samples.TEXTS:
        assert text in page
    assert "0:00:00.040 to 0:01:03.120" in page
    report, _ = samples.complete_report()
    assert report.answer
    for segment in report.answer.segments:
        for index in segment.frame_indices:
            assert f'href="#frame-{index}"' in page
    assert "3,810" in page  # prompt tokens of all segments
    assert "7,000" in page
    assert "6,904" in page


def test_a_model_written_summary_stands_before_its_segments() -> None:
    report, pictures = samples.complete_report()
    assert report.answer
    answer = report.answer.model_copy(update={"summary_method": "model", "text": "In short: one grasp."})
    html = render_report(report.model_copy(update={"answer": answer}), pictures)
    assert html.index("In short: one grasp.") < html.index("By segment") < html.index(samples.TEXTS[0])


def test_frames_without_time_are_told_apart_across_segments() -> None:
    """The model counts the frames of each segment from 1, so the page says which frame that is."""
    report, _ = samples.still_report()
    assert report.answer
    assert report.keyframes
    stack = tuple(samples.keyframe(number, still=True) for number in range(4))
    segments = tuple(
        report.answer.segments[0].model_copy(
            update={"segment_index": i, "frame_indices": (2 * i, 2 * i + 1), "start_ns": None, "end_ns": None}
        )
        for i in range(2)
    )
    changes = {
        "keyframes": report.keyframes.model_copy(update={"keyframes": stack}),
        "answer": report.answer.model_copy(update={"segments": segments}),
    }
    text = re.sub(r"\s+", " ", Page(render_report(report.model_copy(update=changes), {})).text)
    assert "Frame 3 to frame 4" in text
    assert "1 is frame 3 2 is frame 4" in text


def test_failures_come_with_what_to_do(pages: dict[str, str]) -> None:
    failed, partial = Page(pages["failed"]).text, Page(pages["partial"]).text
    assert "damaged, cut short, empty or encrypted" in failed
    assert "Fetch it again" in failed
    assert "moov atom not found" in failed
    assert "When does an instrument touch tissue" in failed
    assert "There is no answer" in failed
    assert "Ask the model (failed)" in re.sub(r"\s+", " ", partial)
    assert "cut off at the token limit" in partial
    assert "This picture is not in the report" in partial


def test_hostile_model_text_stays_text() -> None:
    report, pictures = samples.complete_report(texts=(samples.HOSTILE, "\u202egnp.exe \x1b[2J", ""))
    notice = {"answer": report.answer.model_copy(update={"model_notice": samples.HOSTILE})} if report.answer else {}
    hostile = report.model_copy(
        update=notice
        | {
            "warnings": (samples.HOSTILE,),
            "request": samples.request(case_id=samples.HOSTILE),
            "provenance": samples.provenance(flow_run_url="javascript:alert(1)"),
        }
    )
    html = render_report(hostile, pictures)
    page = Page(html)
    assert "script" not in page.tags
    assert not page.handlers
    assert all(address.startswith("data:image/") for address in page.loads)
    assert not any(link.startswith("javascript") for link in page.links)
    assert "&lt;script&gt;" in html
    assert "\u202e" not in html
    assert "\x1b" not in html
    assert "(no text)" in html


def test_only_real_pictures_are_embedded() -> None:
    report, pictures = samples.complete_report()
    svg = b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>"
    html = render_report(report, dict.fromkeys(pictures, svg))
    assert not Page(html).loads
    assert base64.b64encode(svg).decode() not in html


def test_a_long_medium_keeps_the_page_small() -> None:
    report, pictures = samples.complete_report()
    assert report.keyframes
    picture = next(iter(pictures.values()))
    many = tuple(
        Keyframe(
            frame_index=number * 10,
            pts_ns=number * samples.S,
            score=0.5,
            reason=KeyframeReason.CHANGE,
            sharpness=10,
            image_uri=f"s3://results/{number}",
        )
        for number in range(250)
    )
    long = report.model_copy(
        update={"keyframes": report.keyframes.model_copy(update={"keyframes": many}), "pooling": None}
    )
    wanted = pictures_wanted(long)
    assert SHOWN_KEYFRAMES / 2 < len(wanted) <= SHOWN_KEYFRAMES
    assert wanted[0] == "s3://results/0"
    assert int(wanted[-1].rsplit("/")[-1]) > 230
    html = render_report(long, dict.fromkeys(wanted, picture))
    page = Page(html)
    assert len(page.loads) == len(wanted)
    assert f"{250 - len(wanted)} more keyframes without pictures" in html
    assert all(f"frame-{frame.frame_index}" in page.ids for frame in many)


def test_pictures_wanted_are_the_ones_shown() -> None:
    report, pictures = samples.complete_report()
    assert set(pictures_wanted(report)) == set(pictures)
    assert pictures_wanted(samples.failed_report()[0]) == ()


def test_timeline_places_keyframes_by_time() -> None:
    report, _ = samples.complete_report()
    line = timeline_of(report)
    assert line
    assert [tick.percent for tick in line.ticks] == pytest.approx([100 * t / 280 for t in samples.TIMES_S], abs=0.01)
    assert [band.number for band in line.segments] == [1, 2, 3]
    assert line.gaps[0].start_percent == pytest.approx(100 * 88 / 280, abs=0.01)
    assert line.marks[0].label == "0:00"
    assert line.marks[-1].label == "4:40"
    assert timeline_of(samples.still_report()[0]) is None
    assert timeline_of(samples.failed_report()[0]) is None


def test_timeline_of_pages_counts_frames() -> None:
    report, _ = samples.still_report()
    assert report.keyframes
    stack = tuple(samples.keyframe(number, still=True) for number in range(5))
    line = timeline_of(
        report.model_copy(update={"keyframes": report.keyframes.model_copy(update={"keyframes": stack})})
    )
    assert line
    assert line.unit == "frame"
    assert [mark.label for mark in line.marks] == ["1", "2", "3", "4", "5"]
    assert [tick.percent for tick in line.ticks] == [0, 25, 50, 75, 100]


@pytest.mark.parametrize("last_s", [0.04, 0.9, 7, 59, 3599, 6 * 3600, 40 * 3600])
def test_timeline_has_few_labels_whatever_the_length(last_s: float) -> None:
    report, _ = samples.complete_report()
    assert report.keyframes
    assert report.signals
    last = samples.keyframe(0).model_copy(update={"pts_ns": round(last_s * samples.S)})
    short = report.model_copy(
        update={
            "answer": None,
            "signals": report.signals.model_copy(update={"duration_ns": None, "gaps": ()}),
            "probe": None,
            "keyframes": report.keyframes.model_copy(update={"keyframes": (last,)}),
        }
    )
    line = timeline_of(short)
    assert line
    assert 2 <= len(line.marks) <= 11
    assert all(0 <= mark.percent <= 100 for mark in line.marks)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    require(CHROMIUM.exists(), "Chromium is not installed; on Debian: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=str(CHROMIUM),
            args=["--no-sandbox", "--disable-gpu", "--host-resolver-rules=MAP * ~NOTFOUND"],
        )
        yield chromium
        chromium.close()


@pytest.mark.parametrize("width_px", [360, 1280])
@pytest.mark.parametrize("name", SAMPLES)
def test_opens_in_a_browser_without_the_network(
    browser: Any, pages: dict[str, str], name: str, width_px: int, tmp_path: Path
) -> None:
    file = tmp_path / "report.html"
    file.write_text(pages[name], encoding="utf-8")
    page = browser.new_page(viewport={"width": width_px, "height": 800})
    complaints: list[str] = []
    requests: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(file.as_uri(), wait_until="load")
    broken = page.eval_on_selector_all("img", "all => all.filter(i => !i.complete || i.naturalWidth === 0).length")
    pictures = page.eval_on_selector_all("img", "all => all.length")
    without_words = page.eval_on_selector_all("img", "all => all.filter(i => !i.alt).length")
    headings = page.eval_on_selector_all("h1, h2", "all => all.map(h => h.textContent.trim())")
    overflow = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
    page.close()
    assert complaints == []
    assert [url for url in requests if not url.startswith(("file:", "data:"))] == []
    assert broken == 0
    assert without_words == 0
    assert pictures == {"complete": 20, "partial": 19, "failed": 0, "still": 1}[name]
    expected = {"What it took", "Where this comes from", "What was asked" if name == "failed" else "Answer"}
    assert expected <= set(headings)
    assert ("What went wrong" in headings) == (name in ("partial", "failed"))
    assert overflow <= 0


def test_hostile_text_runs_nothing_in_a_browser(browser: Any, tmp_path: Path) -> None:
    report, pictures = samples.complete_report(texts=(samples.HOSTILE,) * 3)
    file = tmp_path / "report.html"
    file.write_text(render_report(report, pictures), encoding="utf-8")
    page = browser.new_page()
    seen: list[str] = []
    page.on("dialog", lambda dialog: (seen.append("dialog"), dialog.dismiss()))
    page.on("console", lambda message: seen.append(message.text))
    page.on("request", lambda request: seen.append(request.url) if request.url.startswith("http") else None)
    page.goto(file.as_uri(), wait_until="load")
    text = page.inner_text("main")
    page.close()
    assert seen == []
    assert samples.HOSTILE in text


def test_contrast_of_text_is_readable(browser: Any, pages: dict[str, str], tmp_path: Path) -> None:
    """WCAG 2: at least 4.5 to 1 for text, in both colour schemes."""
    file = tmp_path / "report.html"
    file.write_text(pages["partial"], encoding="utf-8")
    script = """() => {
      const parse = c => { const m = c.match(/[\\d.]+/g).map(Number); return m.length < 4 ? [...m, 1] : m; };
      const lum = c => c.slice(0, 3).map(v => v / 255).map(v => v <= 0.03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
        .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
      const back = e => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor);
        if (c[3] > 0) return c; } return [255, 255, 255, 1]; };
      const low = [];
      for (const e of document.querySelectorAll('main *, header *, footer, .notice')) {
        if (e.closest('svg') || ![...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim())) continue;
        const [a, b] = [lum(parse(getComputedStyle(e).color)), lum(back(e))].sort((x, y) => y - x);
        const ratio = (a + .05) / (b + .05);
        if (ratio < 4.5) low.push(e.tagName + '.' + e.className + ' ' + ratio.toFixed(2));
      }
      return [...new Set(low)];
    }"""
    for scheme in ("light", "dark"):
        page = browser.new_page(color_scheme=scheme)
        page.goto(file.as_uri())
        low = page.evaluate(script)
        page.close()
        assert low == [], scheme
