"""Pictures, and their common style. Each experiment draws its own pictures, in its file in `experiments`."""
