"""Grids of simulations: joblib on one machine, Dask on many; resumable, the same bytes out.

`grid` reads a TOML file and lists its cells, `cell` runs one and keeps its result in a file of its own, `engine` runs
the missing ones, `table` gathers what there is.
"""
