"""Benchmarks for `safedial bench`: timings beside the plain arithmetic, and power studies."""
