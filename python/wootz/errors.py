"""Every exception wootz raises, and words for their messages. All derive from WootzError; most derive from
the built-in class of the same sense too.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable

__all__ = [
    "ArgumentError",
    "ArtifactError",
    "CompileError",
    "DeviceError",
    "DriverError",
    "DtypeError",
    "FormatError",
    "MissingPackageError",
    "NoKernelError",
    "NoVariantError",
    "OutOfMemoryError",
    "WootzError",
]


class WootzError(Exception):
    """Base of all errors raised by wootz."""


class ArtifactError(WootzError):
    """An artifact folder is unusable: an index or a binary is missing, truncated, edited or at odds with the
    other.
    """


class CompileError(WootzError, RuntimeError):
    """A source could not be compiled for a device, or the compiler is not there.

    file: the source, "" where it is about none. arch: what it was compiled for. log: what the compiler said.
    """

    def __init__(self, text: str, file: str = "", arch: str = "", log: str = "") -> None:
        self.text, self.file, self.arch, self.log = text, file, arch, log
        super().__init__(f"{text}\n{log}" if log else text)

    def __reduce__(self) -> tuple[type[CompileError], tuple[str, str, str, str]]:
        return type(self), (self.text, self.file, self.arch, self.log)


class NoKernelError(WootzError, LookupError):
    """No shipped kernel fits the request or the device; the message names the kernel, the device and what is
    shipped.
    """


class ArgumentError(WootzError, ValueError):
    """An argument of a call has the wrong kind, shape, stride, alignment or range."""


class NoVariantError(ArgumentError):
    """No variant of a kernel takes the extents of a call; the message says what they take."""


class DtypeError(WootzError, TypeError):
    """An array has an element type (or byte order) that the kernel does not take."""


class FormatError(WootzError, ValueError):
    """A format or a quantised tensor is malformed, or is not the one a kernel takes."""


class DeviceError(WootzError, RuntimeError):
    """A device is absent, unusable, or not the one that the other arguments are on."""


class MissingPackageError(WootzError, ImportError):
    """What was asked for needs a package that is not installed; the message names it."""


# What to do about a driver's result, by its code in CUresult.
_ADVICE = {
    2: "free device memory, or use a smaller problem",
    3: "the driver was not initialised in this process",
    4: "the driver is shutting down; do not launch from exit handlers",
    34: "this is the toolkit's stub of the driver; take its folder out of LD_LIBRARY_PATH",
    36: "the driver is too old for this; update it",
    46: "another process may have the device to itself; see its compute mode in nvidia-smi",
    100: "no device is visible; check CUDA_VISIBLE_DEVICES and that the driver runs",
    101: "no such device; check its number and CUDA_VISIBLE_DEVICES",
    200: "the binary is no valid device image; reinstall or rebuild the artifacts",
    201: "the device may have been reset in this process, which ends what it had loaded",
    209: "the binary holds no code for this device; build its target",
    214: "the device's memory has failed; reset the device, or leave it out with CUDA_VISIBLE_DEVICES",
    218: "the driver could not compile the PTX; ship a binary for this device",
    220: "the link between devices has failed; see nvidia-smi nvlink",
    221: "the driver's PTX compiler is missing; install it, or ship a binary for this device",
    222: "the PTX is newer than the driver; update the driver or ship a binary for this device",
    223: "the environment forbids to compile PTX (CUDA_DISABLE_PTX_JIT); ship a binary for this device",
    226: "the device has contained a fault, of its own or of a peer's memory",
    304: "the operating system refused a call; check the limits of this process and its access to the device",
    400: "a handle is of another device or was destroyed; check stream=",
    500: "the binary has no such symbol; rebuild the artifacts and their index together",
    700: "a kernel read or wrote outside its memory",
    701: "the launch wants more registers or shared memory than the device has",
    702: "a kernel ran longer than the device allows, as one with a display does",
    709: "the device may have been reset in this process, which ends what it had loaded",
    710: "an assertion of a kernel failed",
    714: "a kernel's call stack was damaged",
    715: "a kernel met an instruction that the device does not have",
    716: "a kernel used a misaligned address",
    717: "a kernel used an address outside the space that the instruction takes",
    718: "a kernel jumped outside its code",
    719: "a kernel failed",
    800: "this process may not do that on the device",
    801: "the device or its driver cannot do that",
    802: "the system's services are not up: where devices share a switch, start the fabric manager",
    803: "the driver's library and its kernel module differ; after an update, reboot",
    804: "the compatibility library does not support this device; take it out of LD_LIBRARY_PATH",
    805: "the MPS daemon does not answer; start it, or unset CUDA_MPS_PIPE_DIRECTORY",
    806: "the MPS server does not answer; restart it",
    807: "the MPS server is recovering; try again",
    808: "the MPS server has as many clients as it takes; end some",
    809: "the MPS server has as many connections as it takes; end some clients",
    810: "the MPS server ended this client, perhaps for the fault of another one",
    900: "not allowed while a stream is captured; call preload() before, and pass out= and workspace=",
    901: "an earlier call made the capture invalid; end it, and capture again",
    905: "the call would make a captured stream wait for one that is not captured; pass stream=",
    906: "the default stream was used while another is captured; pass stream=",
    907: "the event was recorded in a captured stream",
    908: "the capture was begun by another thread",
    911: "a device that the work depends on has failed",
    912: "the device runs no clusters of this size; rebuild the artifacts for it",
    999: "the system's log may hold a message of the driver",
}
_LOST = frozenset({226, 700, 702, 710, 714, 715, 716, 717, 718, 719, 810, 911})
_OUT_OF_MEMORY = 2


class DriverError(DeviceError):
    """A driver call failed.

    code: the driver's number (CUresult). name: its name, as CUDA_ERROR_NOT_FOUND. call: the entry point that
    returned it; the fault may be of work that was launched before. lost: every later call in this process
    fails too.
    """

    def __init__(self, code: int, name: str, call: str, text: str = "") -> None:
        self.code, self.name, self.call, self.text = code, name, call, text
        self.lost = code in _LOST
        parts = [f"{call} failed: {name} ({code})"]
        parts += [part for part in (text, _ADVICE.get(code, "")) if part]
        parts += ["the context is lost, restart the process"] if self.lost else []
        super().__init__("; ".join(parts))

    def __reduce__(self) -> tuple[type[DriverError], tuple[int, str, str, str]]:
        return type(self), (self.code, self.name, self.call, self.text)


class OutOfMemoryError(DriverError, MemoryError):
    """The driver has no memory left for what was asked."""


def driver_error(code: int, name: str, call: str, text: str = "") -> DriverError:
    """The exception of a failed driver call; the extension module calls this."""
    kind = OutOfMemoryError if code == _OUT_OF_MEMORY else DriverError
    return kind(code, name, call, text)


def near(word: str, words: Iterable[str]) -> str:
    """ "; did you mean ...?" for a message, or nothing."""
    close = importlib.import_module("difflib").get_close_matches(word, list(words), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
