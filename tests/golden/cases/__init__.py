"""The cases of the golden answers, in a vocabulary of their own: `agents` and `totals`."""
