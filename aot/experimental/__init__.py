"""Parts whose interface may still change."""
from aot.callbacks import io_callback as io_callback
