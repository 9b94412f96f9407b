"""Where a checkpoint stands, read from Spark's files: cheap however long the stream ran, and never a traceback."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_ckpt.checkpoint.fsspec_files import FsspecFiles
from ckpt_stream.protocol.checkpoint.checkpoint_reader import CheckpointFinding, CheckpointReport, read_checkpoint

pytestmark = pytest.mark.unit

QUERY = "6f412f34-bb6b-4ac9-89f5-2feca2991dc9"


class Folder:
    """A checkpoint in memory that counts what is asked of it."""

    def __init__(self, texts: dict[str, str] | None = None) -> None:
        self.texts = dict(texts or {})
        self.listed: list[str] = []
        self.was_read: list[str] = []

    def exists(self, name: str) -> bool:
        return name in self.texts

    def read(self, name: str) -> str | None:
        self.was_read.append(name)
        return self.texts.get(name)

    def names(self, folder: str) -> list[str]:
        self.listed.append(folder)
        return sorted(name.removeprefix(f"{folder}/") for name in self.texts if name.startswith(f"{folder}/"))


def offsets(end: int, watermark: int = 0) -> str:
    meta = {
        "batchWatermarkMs": watermark,
        "batchTimestampMs": 1794944818086,
        "conf": {"spark.sql.shuffle.partitions": "2"},
    }
    return f"v1\n{json.dumps(meta)}\n" + json.dumps({"orders": {"0": end, "1": end + 1}})


def commit(watermark: int = 0) -> str:
    return f'v1\n{{"nextBatchWatermarkMs":{watermark}}}'


def checkpoint(begun: int, committed: int, first: int = 0) -> Folder:
    """A healthy one: batches up to `begun - 1` are in the offset log, up to `committed - 1` in the commit log."""
    texts = {f"offsets/{n}": offsets(10 * (n + 1), n) for n in range(first, begun)}
    texts |= {f"commits/{n}": commit(n + 1) for n in range(first, committed)}
    return Folder({**texts, "metadata": json.dumps({"id": QUERY})})


def ends(end: int) -> dict[str, dict[str, int]]:
    return {"orders": {"0": end, "1": end + 1}}


def kinds(found: CheckpointReport) -> list[str]:
    return [finding.kind for finding in found.findings]


def only(found: CheckpointReport) -> CheckpointFinding:
    (finding,) = found.findings
    assert finding.helps
    assert not finding.helps.endswith(".")
    return finding


def test_a_checkpoint_between_two_batches_is_read() -> None:
    assert read_checkpoint(checkpoint(8, 8)) == CheckpointReport(
        query_id=QUERY,
        newest=7,
        committed=7,
        start={},
        end=ends(80),
        committed_offsets=ends(80),
        watermark_ms=7,
        next_watermark_ms=8,
        batch_timestamp_ms=1794944818086,
        offset_log_version="v1",
        commit_log_version="v1",
        conf={"spark.sql.shuffle.partitions": "2"},
        batches=8,
        kept=8,
    )


def test_a_batch_that_was_begun_and_not_done_is_in_doubt_and_what_is_committed_ends_before_it() -> None:
    found = read_checkpoint(checkpoint(8, 7))
    assert (found.newest, found.committed, found.in_doubt) == (7, 6, 7)
    assert found.as_dict()["in_doubt"] == 7
    assert (found.start, found.end, found.committed_offsets) == (ends(70), ends(80), ends(70))
    assert found.findings == ()


def test_the_very_first_batch_in_doubt_has_nothing_committed_before_it() -> None:
    found = read_checkpoint(checkpoint(1, 0))
    assert (found.newest, found.committed, found.in_doubt, found.batches) == (0, None, 0, 0)
    assert (found.end, found.committed_offsets) == (ends(10), {})
    assert found.findings == ()


def test_ten_thousand_batches_cost_two_listings_and_two_small_reads() -> None:
    files = checkpoint(10_000, 10_000)
    found = read_checkpoint(files, with_metadata=False)
    assert sorted(files.listed) == ["commits", "offsets"]
    assert sorted(files.was_read) == ["commits/9999", "offsets/9999"]
    assert (found.batches, found.committed_offsets, found.query_id) == (10_000, ends(100_000), None)


def test_a_batch_in_doubt_costs_one_read_more_and_the_query_id_another_one() -> None:
    files = checkpoint(10_000, 9_999)
    read_checkpoint(files)
    assert sorted(files.listed) == ["commits", "offsets"]
    assert sorted(files.was_read) == ["commits/9998", "metadata", "offsets/9998", "offsets/9999"]


def test_where_a_committed_batch_began_is_read_only_if_it_is_asked_for() -> None:
    files = checkpoint(8, 8)
    assert read_checkpoint(files, with_start=True).start == ends(70)
    assert "offsets/6" in files.was_read


def test_the_first_batch_began_where_the_source_had_pinned_it() -> None:
    files = checkpoint(1, 1)
    files.texts["sources/0/0"] = '\0v1\n{"orders":{"0":3,"1":4}}'
    assert read_checkpoint(files, with_start=True).start == {"orders": {"0": 3, "1": 4}}


@pytest.mark.parametrize("text", ["", "\0"])
def test_an_empty_file_of_pinned_offsets_is_damage_and_not_a_source_without_a_start(text: str) -> None:
    files = checkpoint(1, 0)
    files.texts["sources/0/0"] = text
    found = read_checkpoint(files, with_start=True)
    assert [(f.kind, f.file) for f in found.findings] == [("empty", "sources/0/0")]


def test_the_start_of_a_batch_whose_predecessor_is_gone_is_unknown_and_no_damage() -> None:
    found = read_checkpoint(checkpoint(8, 8, first=7), with_start=True)
    assert (found.start, found.findings) == ({}, ())


def test_batches_that_spark_has_thrown_away_are_no_damage() -> None:
    found = read_checkpoint(checkpoint(1000, 1000, first=900))
    assert (found.batches, found.kept, found.findings) == (1000, 100, ())


def test_the_second_version_of_both_logs_is_read() -> None:
    files = checkpoint(3, 3)
    files.texts["offsets/2"] = 'v2\n{"batchTimestampMs":5}\n0:{"orders":{"0":30}}'
    files.texts["commits/2"] = 'v2\n{"nextBatchWatermarkMs":6,"stateUniqueIds":{"0":[["a"]]}}'
    found = read_checkpoint(files)
    assert (found.offset_log_version, found.commit_log_version, found.end) == ("v2", "v2", {"orders": {"0": 30}})
    assert found.findings == ()


def test_names_that_are_no_batches_are_passed_over() -> None:
    files = checkpoint(3, 3)
    for folder in ("offsets", "commits"):
        for name in (".2.crc", "9.tmp", ".9.f2c1.tmp", "_spark_metadata", "²", "٣", "07", "-1", "1.5", "", "offsets"):
            files.texts[f"{folder}/{name}"] = "garbage"
    assert read_checkpoint(files) == read_checkpoint(checkpoint(3, 3))


def test_no_checkpoint_at_all_has_a_name_and_nothing_else() -> None:
    found = read_checkpoint(Folder())
    assert only(found).kind == "no_checkpoint"
    assert replace(found, findings=()) == CheckpointReport()


@pytest.mark.parametrize("with_metadata", [True, False])
def test_a_stream_that_has_not_begun_a_batch_yet_is_no_missing_checkpoint(with_metadata: bool) -> None:
    found = read_checkpoint(checkpoint(0, 0), with_metadata=with_metadata)
    assert found == CheckpointReport(query_id=QUERY)


META = '{"batchTimestampMs":1}'


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("", "empty"),
        ("\n", "empty"),
        ("\0\0\0", "empty"),
        ("v", "torn"),
        ("v1", "torn"),
        ("v1\n", "torn"),
        ('v1\n{"batchTimest', "torn"),
        (f"v1\n{META}", "torn"),
        (f'v1\n{META}\n{{"orders":{{"0":5', "torn"),
        ("garbage", "foreign"),
        ("PAR1 and so on", "foreign"),
        ("v1\n[]\n{}", "foreign"),
        (f'v1\n{META}\n{{"orders":{{"0":"5"}}}}', "foreign"),
        (f"v3\n{META}\n{{}}", "unknown_version"),
        (f"v27\n{META}\n{{}}", "unknown_version"),
    ],
)
def test_a_damaged_offset_log_is_named_and_the_rest_is_read(text: str, kind: str) -> None:
    files = checkpoint(8, 8)
    files.texts["offsets/7"] = text
    found = read_checkpoint(files)
    finding = only(found)
    assert (finding.kind, finding.file) == (kind, "offsets/7")
    assert finding.what.startswith("offsets/7 ")
    assert "newer airflow-ckpt" in finding.helps if kind == "unknown_version" else "restore" in finding.helps
    assert (found.newest, found.committed, found.query_id, found.next_watermark_ms) == (7, 7, QUERY, 8)
    assert (found.end, found.committed_offsets, found.watermark_ms) == ({}, {}, None)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("", "empty"),
        ("v1", "torn"),
        ("v1\n{", "torn"),
        ("v1\n5", "foreign"),
        ("x", "foreign"),
        ("v3\n{}", "unknown_version"),
    ],
)
def test_a_damaged_commit_log_is_named_and_the_offsets_are_still_read(text: str, kind: str) -> None:
    files = checkpoint(8, 8)
    files.texts["commits/7"] = text
    found = read_checkpoint(files)
    assert (only(found).kind, only(found).file) == (kind, "commits/7")
    assert (found.committed, found.committed_offsets, found.commit_log_version) == (7, ends(80), None)


@pytest.mark.parametrize(("text", "kind"), [("", "empty"), ('{"id":', "torn"), ('{"id":5}', "foreign")])
def test_a_damaged_metadata_file_is_named(text: str, kind: str) -> None:
    files = checkpoint(8, 8)
    files.texts["metadata"] = text
    found = read_checkpoint(files)
    assert (only(found).kind, only(found).file, found.query_id) == (kind, "metadata", None)


def test_a_lost_query_id_is_named_with_what_is_at_stake() -> None:
    files = checkpoint(8, 8)
    del files.texts["metadata"]
    finding = only(read_checkpoint(files))
    assert (finding.kind, finding.file) == ("missing", "metadata")
    assert "new query" in finding.what


def test_a_file_that_vanishes_after_it_was_listed_is_named() -> None:
    class Vanishing(Folder):
        def read(self, name: str) -> str | None:
            return None if name == "offsets/7" else super().read(name)

    finding = only(read_checkpoint(Vanishing(checkpoint(8, 8).texts)))
    assert (finding.kind, finding.file) == ("missing", "offsets/7")


def test_commits_without_any_offsets_are_damage() -> None:
    files = checkpoint(8, 8)
    files.texts = {name: text for name, text in files.texts.items() if not name.startswith("offsets/")}
    found = read_checkpoint(files)
    assert only(found).kind == "commit_without_offsets"
    assert (found.newest, found.committed, found.in_doubt, found.committed_offsets) == (None, 7, None, {})


def test_a_commit_newer_than_the_newest_offsets_is_damage() -> None:
    files = checkpoint(8, 8)
    del files.texts["offsets/7"]
    found = read_checkpoint(files)
    assert (only(found).kind, only(found).file) == ("commit_without_offsets", "offsets/7")
    assert (found.newest, found.committed, found.in_doubt) == (6, 7, None)
    assert (found.end, found.committed_offsets) == (ends(70), {})


def test_a_committed_batch_whose_offsets_are_missing_is_damage_although_a_newer_one_is_there() -> None:
    files = checkpoint(8, 7)
    del files.texts["offsets/6"]
    found = read_checkpoint(files)
    assert only(found).kind == "commit_without_offsets"
    assert (found.in_doubt, found.start, found.committed_offsets) == (7, {}, {})


@pytest.mark.parametrize("committed", [0, 3, 6])
def test_more_than_one_batch_in_doubt_means_that_commits_are_missing(committed: int) -> None:
    found = read_checkpoint(checkpoint(8, committed))
    finding = only(found)
    assert (finding.kind, finding.file) == ("missing_commits", "commits/6")
    assert (found.newest, found.in_doubt) == (7, 7)


def test_batches_that_end_between_the_two_listings_are_not_taken_for_damage() -> None:
    class Running(Folder):
        """Commits five batches after each listing."""

        def names(self, folder: str) -> list[str]:
            found = super().names(folder)
            n = sum(name.startswith("commits/") for name in self.texts)
            self.texts |= checkpoint(n + 5, n + 5).texts
            return found

    files = Running(checkpoint(8, 8).texts)
    found = read_checkpoint(files)
    assert (found.newest, found.committed, found.in_doubt, found.findings) == (12, 12, None, ())
    assert files.listed == ["commits", "offsets", "commits"]


def test_a_binary_file_in_place_of_a_log_entry_is_foreign(tmp_path: Path) -> None:
    for name, text in checkpoint(2, 2).texts.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "offsets" / "1").write_bytes(b"\xff\xfe\x00")
    found = read_checkpoint(FsspecFiles(str(tmp_path)))
    assert (kinds(found), found.committed) == (["foreign"], 1)


def test_a_folder_that_is_not_there_is_no_checkpoint(tmp_path: Path) -> None:
    assert kinds(read_checkpoint(FsspecFiles(str(tmp_path / "nowhere")))) == ["no_checkpoint"]
