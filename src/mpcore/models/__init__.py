"""Models: layers that train themselves."""

from mpcore.models.model import Model
from mpcore.models.sequential import Sequential

__all__ = ["Model", "Sequential"]
