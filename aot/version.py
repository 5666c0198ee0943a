"""The version of this package."""
from aot import __version__

__version_info__ = tuple(map(int, __version__.split(".")))

__all__ = ["__version__", "__version_info__"]
