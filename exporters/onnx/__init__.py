"""StableHLO programs as ONNX models."""
