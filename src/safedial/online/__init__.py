"""The in-memory online learner: one safe action at a time, explained."""
