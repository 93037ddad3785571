"""The paper's experiments. Each writes data and provenance, never pictures."""
