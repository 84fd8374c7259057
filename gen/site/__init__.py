"""The report: one static page about an artifact folder or a wheel, and a file for each unit that it opens.

folder or wheel -> Shipped (what is there) -> Coverage, sizes, times, plots -> page and unit files. Everything
comes from the index, the files beside it, the build's records and the benchmark files; what none of them
knows is left out.
"""
