"""The tests run the examples on these pages; the program that builds the site, and its gallery, are not for them."""

collect_ignore_glob = ["*.py", "auto_gallery/*"]
