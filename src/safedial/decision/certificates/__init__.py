"""What a decision says about itself, one kind of promise a file."""
