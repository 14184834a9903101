"""Layers: building blocks of models, each a composition of `mpcore.ops`."""

from mpcore.layers.activation import Activation
from mpcore.layers.batch_normalization import BatchNormalization
from mpcore.layers.dense import Dense
from mpcore.layers.dropout import Dropout
from mpcore.layers.embedding import Embedding
from mpcore.layers.flatten import Flatten
from mpcore.layers.layer import Layer
from mpcore.layers.normalization import LayerNormalization, RMSNormalization
from mpcore.layers.reshape import Reshape

__all__ = [
    "Activation",
    "BatchNormalization",
    "Dense",
    "Dropout",
    "Embedding",
    "Flatten",
    "Layer",
    "LayerNormalization",
    "RMSNormalization",
    "Reshape",
]
