from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import launchpad as lp
from examples.mapreduce.program import Reducer, check, partition
from examples.mapreduce.text import count_all, count_words, find_texts

CHECK_EVERY_S = 300.0
"""Where workers live for half a second each, on a slow machine many have to begin again."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b.txt").write_text("To be, or not to be", encoding="utf-8")
    (tmp_path / "a.txt").write_text("that is the question: être?", encoding="utf-8")
    (tmp_path / "latin1.txt").write_bytes("être".encode("latin-1"))
    (tmp_path / "ignored.py").write_text("pass", encoding="utf-8")
    return tmp_path


def test_find_texts_finds_matching_files_in_order(folder: Path) -> None:
    texts = find_texts(folder, "*.txt")

    assert texts == [folder / "a.txt", folder / "latin1.txt", folder / "sub" / "b.txt"]


def test_find_texts_leaves_installed_packages_out(tmp_path: Path) -> None:
    packages = tmp_path / "site-packages"
    packages.mkdir()
    (packages / "a.py").touch()
    (tmp_path / "b.py").touch()

    assert find_texts(tmp_path, "*.py") == [tmp_path / "b.py"]
    assert find_texts(packages, "*.py") == [packages / "a.py"]  # asked for by name


def test_find_texts_says_what_to_do_if_there_are_none(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="try another --pattern"):
        find_texts(tmp_path, "*.txt")


def test_count_words_ignores_case_and_punctuation(folder: Path) -> None:
    assert count_words(folder / "sub" / "b.txt") == {"to": 2, "be": 2, "or": 1, "not": 1}


def test_count_words_finds_none_in_a_file_that_is_not_utf8(folder: Path) -> None:
    assert count_words(folder / "latin1.txt") == Counter()


def test_count_all_adds_the_files_up(folder: Path) -> None:
    assert count_all(find_texts(folder, "*.txt")).total() == 11


@given(
    st.dictionaries(st.text(min_size=1), st.integers(min_value=1)),
    st.integers(min_value=1, max_value=8),
)
def test_partition_gives_each_word_to_the_one_reducer_that_owns_it(
    counts: dict[str, int], parts: int
) -> None:
    pieces = partition(counts, parts)

    assert len(pieces) == parts
    assert sum(map(len, pieces)) == len(counts)
    for owner, piece in enumerate(pieces):
        for word, count in piece.items():
            assert zlib.crc32(word.encode()) % parts == owner
            assert counts[word] == count


@pytest.fixture
def reducer(launch_type: str) -> Iterator[lp.CourierClient[Reducer]]:
    program = lp.Program("reducer")
    program.add_node(lp.CourierNode(Reducer), label="reducer")
    with (
        lp.launch(program, launch_type, terminal="output_to_files") as running,
        running.client("reducer") as client,
    ):
        yield client


def test_reducer_loses_nothing_when_mappers_push_at_the_same_time(reducer: Any) -> None:
    for future in [reducer.futures.keep(chunk, {"a": 1, "b": 2}) for chunk in range(200)]:
        future.result()

    assert reducer.total() == {"a": 200, "b": 400}


def test_reducer_counts_a_chunk_once_that_is_pushed_twice_at_the_same_time(reducer: Any) -> None:
    for future in [reducer.futures.keep(chunk % 5, {"a": 1}) for chunk in range(100)]:
        future.result()

    assert reducer.total() == {"a": 5}


def test_check_names_a_word_that_was_counted_wrongly() -> None:
    with pytest.raises(ArithmeticError, match="'b' occurs 2 times, not 0"):
        check(Counter(a=1), Counter(a=1, b=2))


def test_mapreduce_counts_the_words_of_any_folder(run_example, launch_type, folder) -> None:
    done = run_example("mapreduce", launch_type, f"--input={folder}", "--pattern=*.txt")

    assert done.returncode == 0, done.stderr
    assert "100% of 3 files" in done.stdout
    assert "11 words, 9 different: the counts agree" in done.stdout


@pytest.mark.timeout(CHECK_EVERY_S + 20)
@pytest.mark.slow
def test_mapreduce_counts_exactly_although_workers_are_killed(run_example, local_type) -> None:
    done = run_example("mapreduce", local_type, "--chaos=0.2", "--mappers=3", "--reducers=3")

    assert done.returncode == 0, done.stderr
    assert "the counts agree" in done.stdout
    killed = re.search(r"(\d+) kills \(seed 0\): ", done.stdout)
    assert killed is not None
    assert int(killed[1]) > 0


@pytest.mark.slow
@pytest.mark.parametrize("launch_type", ["ray", "kubernetes"], indirect=True)
def test_mapreduce_counts_exactly_on_a_cluster_although_workers_are_killed(
    run_example, launch_type
) -> None:
    done = run_example("mapreduce", launch_type, "--chaos=0.5", "--chaos_kills=3")

    assert done.returncode == 0, done.stderr
    assert "the counts agree" in done.stdout
    assert "3 kills (seed 0): " in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("launch_type", ["spark"], indirect=True)
def test_mapreduce_counts_exactly_on_spark(run_example, launch_type) -> None:
    done = run_example("mapreduce", launch_type)

    assert done.returncode == 0, done.stderr
    assert "the counts agree" in done.stdout


def test_mapreduce_reports_a_mapper_that_cannot_be_built(
    assert_failure_is_reported, podless_type
) -> None:
    assert_failure_is_reported(
        "mapreduce",
        podless_type,
        broken="Mapper.__init__",
        worker="mapper",
        arguments="[example.Path(example.__file__)]",
    )
