"""HTML pages that hold all they show: of a check, of a plan, and the pieces that every page is made of."""
