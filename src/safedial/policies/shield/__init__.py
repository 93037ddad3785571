"""HP-Shield's parts: the rounds it remembers, and the bases it learns from them."""
