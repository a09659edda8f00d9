"""What tasks and the command line share about a pinned medium."""

import subprocess
import sys

from blocks.access import ObjectStat
from tasks.children import media_ref, stat_of
from tasks.records.media import MediaKind
from tests.command_line import ROOT


def test_a_reference_holds_all_that_was_pinned() -> None:
    stat = ObjectStat(uri="s3://b/k.mp4", etag="e", version_id="v", size_bytes=7, last_modified_ns=9)
    media = media_ref(stat.uri, stat, MediaKind.VIDEO, "CASE-1")
    assert stat_of(media) == stat
    assert media.case_id == "CASE-1"
    same = media_ref(stat.uri, stat.model_copy(update={"last_modified_ns": 10}), MediaKind.VIDEO)
    assert same.media_id == media.media_id
    for change in ({"etag": "f"}, {"version_id": "w"}, {"size_bytes": 8}):
        other = media_ref(stat.uri, stat.model_copy(update=change), MediaKind.VIDEO)
        assert other.media_id != media.media_id, change


def test_the_command_line_gets_at_it_without_prefect() -> None:
    program = "import sys, tasks.children; sys.exit('prefect' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, timeout=60)
