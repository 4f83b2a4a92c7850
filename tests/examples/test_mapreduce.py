from __future__ import annotations

import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import launchpad as lp
from examples.mapreduce.claims import check_counts
from examples.mapreduce.text import add_up, count_words, find_texts
from examples.mapreduce.workers import Reducer, partition
from tests.examples.conftest import assert_refused


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
    counts = count_words(folder / "sub" / "b.txt")

    assert dict(counts) == {"to": 2, "be": 2, "or": 1, "not": 1}


def test_a_file_that_is_not_utf8_has_no_words(folder: Path) -> None:
    assert not count_words(folder / "latin1.txt")


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


def test_a_reducer_keeps_each_chunk_once_that_mappers_push_at_the_same_time(tmp_path: Path) -> None:
    with lp.testing.worker("reducer", state=tmp_path), ThreadPoolExecutor(8) as mappers:
        reducer = Reducer(add_up)
        list(mappers.map(lambda chunk: reducer.keep(chunk % 50, {"a": 1, "b": 2}), range(200)))

        assert reducer.results() == {"a": 50, "b": 100}


def test_counts_are_refused_if_one_is_wrong_or_if_a_word_has_two_owners(folder: Path) -> None:
    texts = find_texts(folder, "b.txt")
    right = [{"to": 2, "be": 2}, {"or": 1, "not": 1}]

    assert check_counts(right, texts).total() == 6

    assert_refused(
        lambda: check_counts([{"to": 2, "be": 1}, right[1]], texts),
        lambda: check_counts([{"to": 2, "be": 1}, {"be": 1, **right[1]}], texts),
        lambda: check_counts(right[:1], texts),
    )
