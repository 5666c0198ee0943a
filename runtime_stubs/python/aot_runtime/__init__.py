"""Loader of `.aot` files."""
