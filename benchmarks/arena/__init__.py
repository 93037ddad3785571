"""The arena: worlds × policies and peers × seeds, one table and one picture (docs/arena.md)."""
