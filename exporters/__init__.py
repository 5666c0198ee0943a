"""Exporters: one StableHLO module to one deployable format."""
import os as _os

from aot import source as _source

_source.register_internal(_os.path.dirname(_os.path.abspath(__file__)))
