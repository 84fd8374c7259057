"""Programs in the DSL: what they print on the CPU, and by their CUDA and Metal text, is the same; what they
cannot have is refused by name."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from lanes import Arg, Entry
from lanes import Program as Executed
from wootz.errors import WootzError
from wootz.printed import ProgramFault, printed

from gen.ir import passes
from gen.ir.dsl import Builder, DslError, Val
from gen.ir.nodes import Function
from gen.lower import cuda, metal
from gen.manifest.target import Target
from gen.variants.family import Family
from gen.variants.program import TRIPS, Global, Program, program

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "null"))

import host  # noqa: E402

TARGETS = {
    "cuda": Target(
        "t", "cuda", features=frozenset({"f16", "bf16"}), simd=32, max_threads=1024, shared_bytes=1
    ),
    "metal": Target(
        "t", "metal", features=frozenset({"f16", "bf16"}), simd=32, max_threads=1024, shared_bytes=1
    ),
}
RENDER = {"cuda": cuda.render, "metal": metal.render}
CAPACITY = 4096


def function(family: Family, target: Target) -> Function:
    (variant,) = family.variants(None, "f32", target, {})
    builder = Builder("a_program", variant.threads, target.simd)
    variant.build(builder)
    return passes.run(builder.function, target)


def on_cpu(family: Family, x: np.ndarray[Any, Any], folder: Path, words: int) -> np.ndarray[Any, Any]:
    made = function(family, host.TARGET)
    y = np.full(words, 0xFFFFFFFF, np.uint32)
    arrays = {"x": x, "y": y, "workspace": np.full(1 << 16, 0xFFFFFFFF, np.uint32)}
    host.Library(folder, [made]).run("a_program", arrays, n=x.size, words=words)
    return y


def executed(family: Family, x: np.ndarray[Any, Any], backend: str, words: int) -> np.ndarray[Any, Any]:
    made = function(family, TARGETS[backend])
    args = tuple(Arg(p.name, p.type, p.role) for p in made.params)
    entry = Entry(made.name, args, (1, 1, 1), (1, 1, 1), workspace=1 << 16)
    values: dict[tuple[str, str], Any] = {("x", "in"): x, ("n", "shape"): x.size, ("words", "shape"): words}
    values["y", "out"] = np.full(words, 0xFFFFFFFF, np.uint32)
    with Executed.build(RENDER[backend]([made]), backend, [entry]) as text:
        return text.run(entry, values)["y", "out"]


def outputs(
    main: Callable[[Program], None] | Family,
    folder: Path,
    arguments: list[int] | None = None,
    declared: Mapping[str, Global] | None = None,
    words: int = CAPACITY,
) -> np.ndarray[Any, Any]:
    """y, the same on the CPU and by both texts."""
    family = main if isinstance(main, Family) else program(main, declared)
    x = np.array(arguments or [], np.uint32)
    y = on_cpu(family, x, folder, words)
    count = min(int(y[0]) + 1, words)
    for backend in RENDER:
        found = executed(family, x, backend, words)
        assert found[:count].tobytes() == y[:count].tobytes(), backend
    return y


def loaded(path: Path) -> Any:
    """A kernel's file as if it lay in gen/kernels/."""
    spec = importlib.util.spec_from_file_location(f"gen.kernels.{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_example(tmp_path: Path) -> None:
    module = loaded(ROOT / "examples" / "programs" / "collatz.py")
    assert printed(outputs(module.FAMILY, tmp_path, [60])) == (
        "longest chain up to 60 begins at 54 and takes 112 steps\n"
        "25 primes below 100; 91 is prime: false\n"
        f"root of 2: {np.sqrt(np.float32(2))!s} error: 0.0\n"
    )
    assert printed(outputs(module.FAMILY, tmp_path)).startswith(
        "no argument: up to 30\nlongest chain up to 30 begins at 27"
    )


def test_the_chapter(tmp_path: Path) -> None:
    text = (ROOT / "docs/extending.md").read_text(encoding="utf-8")
    chapter = text[text.index("### Programs\n") :]
    source, _, output = re.findall(r"^```\w*\n(.*?)^```$", chapter, re.M | re.S)[:3]
    (tmp_path / "divisors.py").write_text(source)
    assert printed(outputs(loaded(tmp_path / "divisors.py").FAMILY, tmp_path, [6, 12, 28])) == output


EDGES = [0, 1, 2, 31, 33, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF]


def test_whole_numbers_are_those_of_python(tmp_path: Path) -> None:
    """Every operation on every pair of edges, wrapped to its type; shifts by their last bits."""

    def main(p: Program) -> None:
        with p.loop(0, p.arguments) as i, p.loop(0, p.arguments) as j:
            for dtype in ("u32", "i32"):
                a, b = p.argument(i, dtype), p.argument(j, dtype)
                nonzero = p.select(b.eq(0), 7, b)
                results = [
                    a + b,
                    a - b,
                    a * b,
                    a // nonzero,
                    a % nonzero,
                    a << b,
                    a & b,
                    a ^ b,
                    p.minimum(a, b),
                ]
                p.print(*results, a < b, a.eq(b))
            wide = p.argument(i).cast("u64") * p.argument(j).cast("u64")
            p.print(wide, wide >> 7, wide + wide * wide, wide.cast("u32"))

    def line(a: int, b: int, signed: bool) -> str:
        def wrap(v: int) -> int:
            v &= 0xFFFFFFFF
            return v - (1 << 32) if signed and v >> 31 else v

        a, b = wrap(a), wrap(b)
        d = b or 7
        quotient = abs(a) // abs(d) * (1 if (a < 0) == (d < 0) else -1)
        numbers = [a + b, a - b, a * b, quotient, a - quotient * d, a << (b & 31), a & b, a ^ b, min(a, b)]
        return " ".join([*(str(wrap(v)) for v in numbers), *(str(v).lower() for v in (a < b, a == b))])

    wanted = []
    for a in EDGES:
        for b in EDGES:
            wide, mask = a * b, (1 << 64) - 1
            wanted += [line(a, b, False), line(a, b, True)]
            wanted.append(f"{wide} {wide >> 7} {(wide + wide * wide) & mask} {wide & 0xFFFFFFFF}")
    assert printed(outputs(main, tmp_path, EDGES, words=1 << 15)).splitlines() == wanted


FLOATS = [0.0, -0.0, 1.5, -2.5, 3e9, -3e9, 5e9, 1e-40, float("inf"), float("-inf"), float("nan"), 0.1]


def test_floats_are_those_of_numpy(tmp_path: Path) -> None:
    def main(p: Program) -> None:
        with p.loop(0, p.arguments) as i:
            x = p.argument(i, "f32")
            p.print(x, x * x + 0.1, x / 3.0, p.op("round", x), p.op("sqrt", p.op("abs", x)), x < 1.0)
            p.print(x.cast("u32"), x.cast("i32"), x.cast("i32").cast("f32"))

    xs = np.array(FLOATS, np.float32)
    f, ends = np.float32, {"u32": (0, 4294967040), "i32": (-(2**31), 2147483520)}
    wanted = []
    with np.errstate(all="ignore"):
        for x in xs:
            row = [x, x * x + f(0.1), x / f(3), np.rint(x), np.sqrt(np.abs(x))]
            whole = {t: 0 if np.isnan(x) else int(np.clip(f(x), f(a), f(b))) for t, (a, b) in ends.items()}
            wanted.append(
                " ".join([*("nan" if np.isnan(v) else str(v) for v in row), str(bool(x < 1)).lower()])
            )
            wanted.append(f"{whole['u32']} {whole['i32']} {f(whole['i32'])!s}")
    assert printed(outputs(main, tmp_path, xs.view(np.uint32).tolist())).splitlines() == wanted


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2"])
def test_packed_floats_are_those_of_ml_dtypes(name: str, tmp_path: Path) -> None:
    """Every number, halfway between two, next to that, beyond all; of either sign."""
    kind = np.dtype(getattr(ml_dtypes, name))
    operation = "pack_" + name.removeprefix("float8_").removesuffix("fn")

    def main(p: Program) -> None:
        with p.loop(0, p.arguments, 4) as i:
            p.print(p.make(operation, "u32", tuple(p.argument(i + j, "f32").value for j in range(4))))

    every = np.arange(128, dtype=np.uint8).view(kind).astype(np.float32)
    every = every[np.isfinite(every)]
    middles = (every[1:] + every[:-1]) / 2
    x = [every, middles, np.nextafter(middles, 0), np.nextafter(middles, 9e9), [every[-1] * 1.1, 3e38]]
    x = np.concatenate([np.concatenate(x), -np.concatenate(x)]).astype(np.float32)
    x = np.append(x, np.zeros(-x.size % 4, np.float32))
    wanted = np.clip(x, -every[-1], every[-1]).astype(kind).view(np.uint32)
    found = printed(outputs(main, tmp_path, x.view(np.uint32).tolist()))
    assert found.splitlines() == [str(word) for word in wanted]


def test_globals_of_every_type(tmp_path: Path) -> None:
    types = {"u32": 4000000000, "i32": -7, "u64": 1 << 40, "f32": 0.25, "bool": True}

    def main(p: Program) -> None:
        for dtype, value in types.items():
            held = p.globals[dtype]
            p.print(dtype, held[1], end=" ")
            with p.loop(0, 3) as i:
                held[i] = p.const(value, dtype)
            p.print(held[0], held[2])

    declared = {dtype: Global(dtype, 3) for dtype in types}
    assert printed(outputs(main, tmp_path, declared=declared)) == (
        "u32 0 4000000000 4000000000\ni32 0 -7 -7\nu64 0 1099511627776 1099511627776\n"
        "f32 0.0 0.25 0.25\nbool false true true\n"
    )


def divided(p: Program) -> None:
    p.print("before", end="|")
    p.print(p.argument(0) // p.argument(1))


def beyond(p: Program) -> None:
    p.print("before", end="|")
    p.globals["few"][p.argument(0)] = 1
    p.print(p.globals["few"][0])


def endless(p: Program) -> None:
    p.print("before", end="|")
    with p.during(lambda: p.arguments > 0):
        pass


@pytest.mark.parametrize(
    ("main", "arguments", "why"),
    [
        (divided, [5, 0], "a division by zero"),
        (divided, [], "an argument is asked for that x has not"),
        (beyond, [3], "an index of few is outside its 3 elements"),
        (beyond, [0xFFFFFFFF], "an index of few is outside its 3 elements"),
    ],
)
def test_faults(main: Callable[[Program], None], arguments: list[int], why: str, tmp_path: Path) -> None:
    y = outputs(main, tmp_path, arguments, {"few": Global("u32", 3)})
    with pytest.raises(ProgramFault, match=why) as caught:
        printed(y)
    assert caught.value.text.startswith("before|")


def test_a_loop_without_end_has_one(tmp_path: Path) -> None:
    """On the CPU alone: the others take their time."""
    y = on_cpu(program(endless), np.array([1], np.uint32), tmp_path, CAPACITY)
    with pytest.raises(ProgramFault, match=f"more than {TRIPS} trips of loops"):
        printed(y)


def test_a_buffer_that_is_too_small(tmp_path: Path) -> None:
    def main(p: Program) -> None:
        with p.loop(0, 5) as i:
            p.print("line", i)

    whole = outputs(main, tmp_path)
    with pytest.raises(WootzError, match=rf"printed {whole[0] + 1} words, y has 9: call it with capacity="):
        printed(outputs(main, tmp_path, words=9))


@pytest.mark.parametrize("words", [[], [5, 1, 2], [2, 9, 0], [1, 1], [2, 0x50, 0x41]])
def test_words_that_are_no_output(words: list[int]) -> None:
    with pytest.raises(WootzError, match=r"words|begins no record"):
        printed(np.array(words, np.uint32))


def itself(p: Program, x: Val) -> Val:
    result: Val = p.call(itself, x)
    return result


REFUSED: dict[str, Callable[[Program], Any]] = {
    "itself -> itself: recursion has no lowering": lambda p: p.call(itself, p.arguments),
    "exp: backends round it differently": lambda p: p.op("exp", p.const(1.0, "f32")),
    "sin: backends round it differently": lambda p: p.op("sin", p.const(1.0, "f32")),
    "thread: a program is one thread": lambda p: p.thread(),
    "barrier: a program is one thread": lambda p: p.barrier(),
    "shared memory s: a program is one thread": lambda p: p.shared("s", "u32", 4),
    "cast of f16": lambda p: p.const(1.0, "f32").cast("f16"),
    "cast of f32 to u64": lambda p: p.const(1.0, "f32").cast("u64"),
    "no values of type u8": lambda p: p.argument(0, "u8"),
    "print of u8": lambda p: p.print(p.arguments.cast("u8")),
}


@pytest.mark.parametrize("said", REFUSED)
def test_what_a_program_cannot_have(said: str) -> None:
    with pytest.raises(DslError, match=said):
        function(program(REFUSED[said]), TARGETS["cuda"])


@pytest.mark.parametrize("declared", [Global("u32", 0), Global("f16", 3)])
def test_globals_that_are_none(declared: Global) -> None:
    with pytest.raises(DslError, match="global g of"):
        program(divided, {"g": declared})
