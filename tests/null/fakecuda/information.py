"""What `wootz info` and the logger find out from a driver, seen by the stand-in that WOOTZ_LIBCUDA names."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
from wootz import info, introspection

from tests.null.fakecuda.standin import Driver, GpuArray, copy_on, library, main, scenario

GIB = 1 << 30


def _facts(**more: Any) -> dict[str, Any]:
    return introspection.environment(str(library().path), **more)


@scenario
def devices() -> None:
    driver = Driver()
    driver.device(count=2)
    facts = _facts()
    assert facts["driver"] == {"cuda": "13.0", "ptx": "9.0"}
    first, second, cpu = facts["devices"]
    assert first == {
        "device": "cuda:0", "name": "Fake GPU", "capability": "9.0", "sms": 132, "shared_bytes": 232448,
        "memory_bytes": 141 * GIB, "free_bytes": None, "integrated": False, "driver_version": 13000,
    }, first  # fmt: skip
    assert (second["device"], cpu["device"]) == ("cuda:1", "cpu")
    assert not driver.log("cuDevicePrimaryCtxRetain"), "no context is made to be asked"
    on = {each["device"]: each for each in facts["coverage"]}
    assert [(row["target"], row["serves"]) for row in on["cuda:1"]["targets"]] == [("gpu90a", 5)]
    assert on["cuda:1"]["targets"][0]["executed"] == {"nowhere": 5}
    assert (on["cpu"]["served"], on["cpu"]["unserved"]) == (0, {"built for gpu80, gpu90a only": 5})
    assert _facts(ask_memory=True)["devices"][1]["free_bytes"] == 100 * GIB
    assert len(driver.log("cuDevicePrimaryCtxRetain")) == 2
    assert _facts()["devices"][0]["free_bytes"] == 100 * GIB, "a context is active now"
    driver.check_balance()


@scenario
def a_kernel() -> None:
    driver = Driver()
    driver.device(capability=(8, 6))
    (cell,) = introspection.picked(library(), "cuda:0", "qgemv")
    assert (cell["target"], cell["file"]) == ("gpu80", "cubin/gpu80.cubin")
    assert "Fake GPU, compute capability 8.6" in cell["reason"]
    assert [entry["symbol"] for entry in cell["entries"]] == ["gemv_one", "gemv_many"]
    assert info.main(["qgemv", "--artifacts", str(library().path)]) == 0
    assert not driver.log("cuModule"), "nothing is loaded"


@scenario
def problems() -> None:
    driver = Driver()
    driver.device(count=2)
    driver.fail("cuDeviceTotalMem", 719)
    facts = _facts()
    assert facts["driver"]["problem"] == "the driver has no usable device"
    for device in facts["devices"][:2]:
        assert "cuDeviceTotalMem failed: CUDA_ERROR_LAUNCH_FAILED (719)" in device["problem"]
    assert [each["device"] for each in facts["coverage"]] == ["cpu"]
    driver.clear()
    driver.fail("cuMemGetInfo", 2)
    assert "CUDA_ERROR_OUT_OF_MEMORY" in _facts(ask_memory=True)["devices"][0]["problem"]
    driver.check_balance()


@scenario
def no_driver_starts() -> None:
    Driver().fail("cuInit", 100)
    facts = _facts()
    assert "cuInit failed: CUDA_ERROR_NO_DEVICE (100)" in facts["driver"]["problem"]
    assert [each["device"] for each in facts["devices"]] == ["cpu"]


@scenario
def events() -> None:
    Driver()
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append  # type: ignore[method-assign]
    logger = logging.getLogger("wootz")
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    lib = library()
    copy_on(lib)
    opened, driver, chosen, loaded = records
    assert (driver.event, driver.driver, driver.ptx) == ("driver_initialised", "13.0", "9.0")  # type: ignore[attr-defined]
    assert (chosen.cell, chosen.target) == ("copy/-/f16/gpu90a", "gpu90a")  # type: ignore[attr-defined]
    assert (loaded.file, loaded.device) == ("cubin/gpu90a.cubin", "cuda:0")  # type: ignore[attr-defined]
    assert opened.event == "library_opened"  # type: ignore[attr-defined]
    kernel = lib.kernel("copy", dtype="f16")
    x, out = (GpuArray(np.zeros(16, np.float16)) for _ in range(2))
    kernel(x, out=out)
    records.clear()
    kernel(x, out=out)
    assert not records


if __name__ == "__main__":
    main()
