"""One decision and the life of its round, shared by `Agent` and `Study`."""
