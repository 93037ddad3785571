"""Pictures, and the look they share. An experiment's own pictures are in its file in `experiments`."""
