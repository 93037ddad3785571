"""One decision and the life of its round, used alike by `Agent` and `Study`."""
