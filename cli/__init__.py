"""The command `aot`."""


def main():
    """Entry point of the console script."""
