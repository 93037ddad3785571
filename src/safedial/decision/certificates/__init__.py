"""Certificates: what a decision states about itself. One file for each kind of promise."""
