"""The compilers and headers of a build: found, asked, or installed."""
