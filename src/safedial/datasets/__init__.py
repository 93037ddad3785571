"""Public data as plain tables. Nothing is bundled: every reader takes the folder that holds the data."""
