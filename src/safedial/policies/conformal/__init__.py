"""What HP-Conformal is made of: predictors, what a refit freezes, and the rounds it remembers."""
