"""What compile on demand does, with a compiler and a driver that are stand-ins.

As scenarios.py: `python on_demand.py NAME`, one process a scenario.
"""

from __future__ import annotations

import logging
import tempfile
import threading
from pathlib import Path
from typing import Any

import numpy as np
import wootz
from wootz import errors, modules
from wootz.jit import Cache, Counters, Jit

from tests.null import loader_tools as tools
from tests.null.fakecuda.standin import F16, Driver, GpuArray, copy_on, launches, main, raises, scenario
from tests.null.jit_tools import Bench


def bench(**more: Any) -> Bench:
    return Bench(Path(tempfile.mkdtemp()), **more)


def run(made: Bench, jit: Jit | None = None) -> Counters:
    """A launch in what might be a new process; gives its counters."""
    jit = jit or made.jit()
    copy_on(wootz.load(made.folder.path, jit=jit))
    return jit.counters


def messages() -> list[str]:
    """What is logged from now on, from warnings up."""
    found: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: found.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("wootz.jit").addHandler(handler)
    return found


# ---- when


@scenario
def off_by_default() -> None:
    made = bench()
    with raises(errors.NoKernelError, "no binary", "gpu80", "src/gpu80.cu", "wootz.load(jit=True)"):
        copy_on(wootz.load(made.folder.path))
    made.source.unlink()
    with raises(errors.NoKernelError, "no binary") as caught:
        copy_on(wootz.load(made.folder.path))
    assert "jit" not in str(caught[0]), "there is nothing that it could compile"


@scenario
def compiled_kept_and_found() -> None:
    driver, made = Driver(), bench()
    jit = made.jit()
    lib = wootz.load(made.folder.path, jit=jit)
    copy_on(lib)
    assert made.compiler.calls == [("src/gpu80.cu", "sm_90", tools.NVRTC["dsl"])]
    assert driver.log("cuModuleLoadData") == ["cuModuleLoadData FAKE made sm_90"]
    assert "copy_u16" in launches(driver)[0]
    copy_on(lib)  # another Kernel, of the same source
    assert jit.counters == Counters(memory_hits=1, compilations=1)
    assert len(driver.log("cuModuleLoadData")) == 1
    assert run(made) == Counters(disk_hits=1)
    assert len(made.compiler.calls) == len(made.entries()) == 1
    driver.device(count=2)
    x, y = GpuArray(np.zeros(16, F16), 1), GpuArray(np.zeros(16, F16), 1)
    lib.kernel("copy", dtype="f16")(x, out=y)
    assert jit.counters == Counters(memory_hits=1, disk_hits=1, compilations=1), (
        "the same for a second device"
    )
    driver.check_balance()


@scenario
def a_served_device_compiles_nothing() -> None:
    driver, made = Driver(), bench()
    for capability in ((8, 0), (8, 6)):
        driver.device(capability=capability)
        assert run(made) == Counters()
    assert not made.compiler.calls
    assert not made.cache.folder.exists()


@scenario
def text_comes_before_sources() -> None:
    driver, made = Driver(), bench()
    entries = [entry for each in tools.ENTRIES.values() for entry in each]
    row = {"key": "text", "backend": "cuda", "capability": [8, 0], "suffix": "", "isa": ["9.0"]}
    made.folder.targets.append({**row, "extension": "ptx"})
    made.folder.add_all("text", [made.folder.file("ptx/text.ptx", tools.fake_cubin(entries, "text"))])
    made.folder.write()
    driver.device(version=13000)
    assert run(made) == Counters()
    assert driver.log("cuModuleLoadData") == ["cuModuleLoadData FAKE text"]
    driver.device(version=12040)
    assert run(made) == Counters(compilations=1), "the driver cannot read this PTX"


@scenario
def the_chips_own_source_comes_first_and_is_for_no_other() -> None:
    driver, made = Driver(), bench()
    made.folder.targets.append(next(row for row in tools.TARGETS if row["key"] == "gpu90a"))
    made.folder.add_all("gpu90a", [], **made.folder.source("src/gpu90a.cu", "// of its own\n"))
    made.folder.write()
    run(made)
    driver.device(capability=(10, 3))
    run(made)
    assert [call[:2] for call in made.compiler.calls] == [
        ("src/gpu90a.cu", "sm_90a"),
        ("src/gpu80.cu", "sm_103"),
    ]
    driver.device(capability=(7, 5))
    with raises(errors.NoKernelError, "no binary", "no source is for it either"):
        run(made)


@scenario
def a_folder_of_sources_alone() -> None:
    made = bench()
    for cell in made.folder.cells:
        cell["files"] = []
    made.folder.write()
    assert run(made) == Counters(compilations=1)
    with raises(errors.NoKernelError, "no binary for cuda", "wootz.load(jit=True)"):
        wootz.load(made.folder.path).kernel("copy", dtype="f16", device="cuda")
    wootz.load(made.folder.path, jit=made.jit()).kernel("copy", dtype="f16", device="cuda")


# ---- what is refused


@scenario
def sources_that_are_not_taken() -> None:
    for made, why in (
        (bench(kind="cutlass"), "it includes headers of others"),
        (bench(stub={"source": "s", "source_sha256": ""}), "host stub"),
        (bench(kind="unheard of"), "build it again"),
    ):
        with raises(errors.NoKernelError, "no binary", "src/gpu80.cu is not compiled here", why):
            run(made)
        assert not made.compiler.calls
    made = bench()
    made.source.unlink()
    with raises(errors.NoKernelError, "src/gpu80.cu is not compiled here", "packed without sources"):
        run(made)


@scenario
def damaged_sources_and_indexes() -> None:
    made = bench()
    made.source.write_text("// edited, of another length\n")
    with raises(errors.ArtifactError, "gpu80.cu", "bytes, the index says"):
        run(made)
    made.source.write_bytes(made.source.read_bytes()[: len(tools.NVRTC)])
    with raises(errors.ArtifactError, "gpu80.cu"):
        run(made)
    made = bench()
    made.source.write_text(made.source.read_text().upper())
    with raises(errors.ArtifactError, "gpu80.cu was changed"):
        run(made)
    made = bench()
    for key, wrong in (("source_size", None), ("source_sha256", 3)):
        for cell in made.folder.cells:
            cell[key] = wrong
        made.folder.write()
        with raises(errors.ArtifactError, "build it again"):
            run(made)
    made = bench()
    tools.edit_index(made.folder.path / "index.json", b'"fma":false', b'"pre_include":"x"')
    with raises(errors.ArtifactError, "pre_include", "does not know"):
        run(made)
    assert not made.compiler.calls


@scenario
def a_failed_compilation() -> None:
    made = bench(text="#error\n")
    jit = made.jit()
    for failures in (1, 2):  # it is tried again
        with raises(errors.CompileError, "src/gpu80.cu does not compile", "line 1: no") as caught:
            run(made, jit)
        error = caught[0]
        assert isinstance(error, errors.CompileError)
        assert (error.file, error.arch, error.log) == ("src/gpu80.cu", "sm_90", "line 1: no")
        assert jit.counters == Counters(failures=failures)
    assert not made.cache.folder.exists()


@scenario
def other_parameters_than_the_index_says() -> None:
    made = bench()
    for cell in made.folder.cells:
        if cell["kernel"] == "copy":
            args = [["x", "ptr", "in"], ["y", "ptr", "out"], ["n", "u64", "shape"]]
            cell["entries"] = [{**tools.ENTRIES["copy"][0], "args": args}]
    made.folder.write()
    with raises(errors.ArtifactError, "copy_u16", "has 8 bytes, the binary has 4"):
        run(made)


# ---- the cache


@scenario
def damaged_entries_are_made_again() -> None:
    made, warnings = bench(), messages()
    run(made)
    (path,) = made.entries()
    whole = path.read_bytes()
    flipped = bytes([*whole[:-9], whole[-9] ^ 1, *whole[-8:]])
    for damaged in (b"", whole[:10], whole[:-1], whole + b" ", flipped, whole.replace(b"FAKE", b"LAKE", 1)):
        path.write_bytes(damaged)
        assert run(made) == Counters(compilations=1), damaged
        assert path.read_bytes() == whole
        assert run(made) == Counters(disk_hits=1)
    assert len(warnings) == 6
    assert all(str(path) in text for text in warnings)
    made.compiler.version = "fake 2"
    run(made)
    one, two = made.entries()
    two.write_bytes(one.read_bytes())  # whole, but of another key
    one.write_bytes(whole[:-1])
    assert run(made) == Counters(compilations=1)
    made.compiler.version = "fake 1"
    assert run(made) == Counters(compilations=1)


@scenario
def entries_that_the_driver_rejects_are_made_again_once() -> None:
    driver, made, warnings = Driver(), bench(), messages()
    run(made)
    key = made.entries()[0].stem
    made.cache.put(key, b"OTHER")
    assert run(made) == Counters(disk_hits=1, compilations=1, removals=1)
    assert run(made) == Counters(disk_hits=1)
    made.cache.put(key, b"OTHER")
    made.compiler.rubbish = True
    jit = made.jit()
    with raises(
        errors.CompileError, "the driver rejects what fake 1 makes of src/gpu80.cu", "update the driver"
    ):
        run(made, jit)
    assert jit.counters == Counters(disk_hits=1, compilations=1, removals=2)
    assert not made.entries(), "what the driver rejects is not kept"
    made.compiler.rubbish = False
    assert run(made, jit).compilations == 2
    driver.fail("cuModuleLoadData", 2)
    with raises(errors.OutOfMemoryError):
        run(made)
    assert made.entries(), "that is no fault of the binary's"
    assert len(warnings) == 3
    driver.check_balance()


@scenario
def no_folder_to_write_to() -> None:
    driver, made, warnings = Driver(), bench(), messages()
    driver.device(count=2)
    made.cache.folder.write_text("a file where the folder should be")
    jit = made.jit()
    assert run(made, jit) == Counters(compilations=1)
    lib = wootz.load(made.folder.path, jit=jit)
    x, y = GpuArray(np.zeros(16, F16), 1), GpuArray(np.zeros(16, F16), 1)
    lib.kernel("copy", dtype="f16")(x, out=y)
    assert jit.counters == Counters(memory_hits=1, compilations=1)
    assert run(made) == Counters(compilations=1), "nothing is there for another process"
    assert len(warnings) == 2, warnings  # one a cache
    assert "WOOTZ_CACHE" in warnings[0]
    assert str(made.cache.folder) in warnings[0]


@scenario
def every_ingredient_is_in_the_key() -> None:
    driver, made = Driver(), bench()
    run(made)

    def is_new() -> bool:
        modules._cuda.cache_clear()
        return run(made) == Counters(compilations=1)

    assert not is_new()
    made.compiler.version = "fake 2"
    assert is_new()
    made.compiler.headers = "other headers"
    assert is_new()
    driver.device(capability=(12, 1))
    assert is_new()
    tools.edit_index(made.folder.path / "index.json", b'"fma":false', b'"fma":true')
    assert is_new()
    other = bench(text="// another text\n")
    other.compiler, other.cache = made.compiler, made.cache
    assert run(other) == Counters(compilations=1)
    assert len(made.entries()) == 6


@scenario
def one_compilation_at_a_time() -> None:
    made = bench()
    made.compiler.seconds, jit = 0.1, made.jit()
    lib, failures = wootz.load(made.folder.path, jit=jit), list[BaseException]()

    def work() -> None:
        try:
            copy_on(lib)
        except BaseException as error:
            failures.append(error)

    workers = [threading.Thread(target=work) for _ in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failures, failures
    assert jit.counters == Counters(memory_hits=5, compilations=1)


@scenario
def two_keys_at_once() -> None:
    one, two = bench(), bench(text="// another\n")
    one.compiler.seconds, jit = 0.3, one.jit()
    libs = [wootz.load(each.folder.path, jit=jit) for each in (one, two)]
    workers = [threading.Thread(target=copy_on, args=(lib,)) for lib in libs]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert jit.counters == Counters(compilations=2)
    assert one.compiler.most == 2, "a lock is for a key"


@scenario
def eviction_is_counted() -> None:
    made = bench()
    run(made)
    limits = wootz.jit.Limits(bytes=1)
    made.compiler.version = "fake 2"
    jit = Jit(made.compiler, Cache(made.cache.folder, limits))
    assert run(made, jit) == Counters(compilations=1, evictions=1)
    assert len(made.entries()) == 1


if __name__ == "__main__":
    main()
