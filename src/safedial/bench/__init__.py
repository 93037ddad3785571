"""Benchmarks that ship with the package: measured in one run beside the plain arithmetic."""
