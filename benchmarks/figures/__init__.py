"""Our own figures, in the form of the paper's experiments."""
