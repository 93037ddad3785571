"""Peers: other packages, one small file each. They run in an environment of their own, without safedial (`serve`)."""
