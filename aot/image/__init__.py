"""Resampling of images."""
from aot.image._resample import ResizeMethod as ResizeMethod
from aot.image._resample import resize as resize
from aot.image._resample import scale_and_translate as scale_and_translate
