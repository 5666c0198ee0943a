"""Small libraries written with this package: optimizers and layers of networks."""
