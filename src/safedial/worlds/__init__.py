"""Where outcomes come from. All randomness is drawn here, keyed by (seed, stream), outside the rule."""
