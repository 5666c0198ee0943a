"""Exporters: one StableHLO module to one deployable format."""
