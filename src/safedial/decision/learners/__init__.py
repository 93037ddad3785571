"""What learns from outcomes, one kind a file."""
