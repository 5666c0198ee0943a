"""Rotations in space."""
from aot.scipy._util import lazily

__getattr__, __dir__, __all__ = lazily(__name__, {}, "transform")
