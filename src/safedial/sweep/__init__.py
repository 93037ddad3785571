"""Grids of simulations: joblib on one machine, Dask on many; resumable, with the same bytes as result.

`grid` reads a TOML file and lists its cells, `cell` runs one cell and keeps its result in a file, `engine` runs the
missing cells, `table` collects the results.
"""
