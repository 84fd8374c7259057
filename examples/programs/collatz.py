"""collatz: a program, run by one thread: Collatz chains, primes by a sieve, and a square root by Newton.

Copied to gen/kernels/, with a line `collatz: {dtypes: [f32]}` in the manifest, it is built as any kernel. Its
arguments are words of x: up to which number to look for the longest chain.
"""

from __future__ import annotations

from ..ir.dsl import Val
from ..variants.program import Global, Program, program


def steps(p: Program, start: Val) -> Val:
    """How many steps a Collatz chain takes to 1."""
    number, count = p.var("number", start.cast("u64"), "u64"), p.var("count", 0, "u32")
    with p.during(lambda: number.get() > 1):
        now = number.get()
        number.set(p.select((now & 1).eq(0), now // 2, now * 3 + 1))
        count.set(count.get() + 1)
    return count.get()


def chains(p: Program, most: Val) -> None:
    longest, best = p.var("longest", 0, "u32"), p.var("best", 1, "u32")
    with p.loop(1, most + 1) as start:
        taken = p.call(steps, start)
        with p.when(taken > longest.get()):
            longest.set(taken)
            best.set(start)
    p.print("longest chain up to", most, "begins at", best.get(), "and takes", longest.get(), "steps")


def primes(p: Program) -> None:
    composite = p.globals["composite"]
    found = p.var("found", 0, "i32")
    with p.loop(2, 100) as i, p.when(~composite[i]):
        found.set(found.get() + 1)
        with p.loop(i * i, 100, i) as j:
            composite[j] = p.const(1, "bool")
    p.print(found.get(), "primes below 100; 91 is prime:", ~composite[91])


def root(p: Program) -> None:
    x = p.var("x", 1.0)
    with p.loop(0, 6):
        x.set((x.get() + p.quotient(2.0, x.get())) * 0.5)
    p.print("root of 2:", x.get(), "error:", x.get() - p.op("sqrt", p.const(2.0, "f32")))


def main(p: Program) -> None:
    with p.when(p.arguments.eq(0)) as given:
        p.print("no argument: up to 30")
        p.call(chains, p.const(30, "u32"))
    with p.otherwise(given):
        p.call(chains, p.argument(0))
    p.call(primes)
    p.call(root)


FAMILY = program(main, {"composite": Global("bool", 100)})
