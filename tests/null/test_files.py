"""What commands write: whole files, and what is there and no file stays what it is."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from wootz import files
from wootz.errors import ArgumentError

from gen.emit import provenance
from gen.emit.provenance import BuildError

WRITERS: dict[str, Callable[[Path, bytes], object]] = {
    "files.write": files.write,
    "provenance.rewrite": provenance.rewrite,
    "provenance.write": lambda path, data: provenance.write(path, data.decode()),
}


@pytest.mark.parametrize("write", WRITERS.values(), ids=list(WRITERS))
def test_a_pipe_is_written_to_and_not_replaced(
    write: Callable[[Path, bytes], object], tmp_path: Path
) -> None:
    pipe, read = tmp_path / "pipe", list[bytes]()
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    write(pipe, b"words")
    reader.join(20)
    assert (read, pipe.is_fifo()) == ([b"words"], True)
    assert list(tmp_path.iterdir()) == [pipe]


@pytest.mark.parametrize("write", WRITERS.values(), ids=list(WRITERS))
def test_nothing_is_left_where_writing_fails(write: Callable[[Path, bytes], object], tmp_path: Path) -> None:
    (tmp_path / "folder" / "inside").mkdir(parents=True)
    with pytest.raises((ArgumentError, BuildError), match="folder"):
        write(tmp_path / "folder", b"words")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


@pytest.mark.parametrize("write", WRITERS.values(), ids=list(WRITERS))
def test_what_a_link_leads_to_is_written_and_the_link_stays(
    write: Callable[[Path, bytes], object], tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    real, link = tmp_path / "elsewhere/real", tmp_path / "link"
    link.symlink_to("elsewhere/real")
    for words in (b"a file that is not there yet", b"words"):
        write(link, words)
        assert (link.is_symlink(), real.read_bytes()) == (True, words)
    assert [path.name for path in (tmp_path / "elsewhere").iterdir()] == ["real"]


@pytest.mark.parametrize("write", WRITERS.values(), ids=list(WRITERS))
def test_links_in_a_circle_are_named(write: Callable[[Path, bytes], object], tmp_path: Path) -> None:
    (tmp_path / "one").symlink_to("other")
    (tmp_path / "other").symlink_to("one")
    with pytest.raises((ArgumentError, BuildError), match="one"):
        write(tmp_path / "one", b"words")
