"""Around a study: calibrate, check, plan, evaluate and choose, with their pages and pictures."""
