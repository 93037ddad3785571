"""The paper: its tables, figures and theorems, its battery data, Algorithm 2 and the eluder dimension.

One file an experiment (`experiment` says what one is, `experiments` lists them); `safedial reproduce` runs them.
"""
