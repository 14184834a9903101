"""Layers: building blocks of models, each a composition of `mpcore.ops`."""

from mpcore.layers.activation import Activation
from mpcore.layers.attention import MultiHeadAttention
from mpcore.layers.batch_normalization import BatchNormalization
from mpcore.layers.conv import Conv1D, Conv2D
from mpcore.layers.dense import Dense
from mpcore.layers.dropout import Dropout
from mpcore.layers.embedding import Embedding
from mpcore.layers.flatten import Flatten
from mpcore.layers.gru import GRU
from mpcore.layers.layer import Layer
from mpcore.layers.normalization import LayerNormalization, RMSNormalization
from mpcore.layers.pooling import (
    AveragePooling1D,
    AveragePooling2D,
    GlobalAveragePooling1D,
    GlobalAveragePooling2D,
    GlobalMaxPooling1D,
    GlobalMaxPooling2D,
    MaxPooling1D,
    MaxPooling2D,
)
from mpcore.layers.reshape import Reshape

__all__ = [
    "GRU",
    "Activation",
    "AveragePooling1D",
    "AveragePooling2D",
    "BatchNormalization",
    "Conv1D",
    "Conv2D",
    "Dense",
    "Dropout",
    "Embedding",
    "Flatten",
    "GlobalAveragePooling1D",
    "GlobalAveragePooling2D",
    "GlobalMaxPooling1D",
    "GlobalMaxPooling2D",
    "Layer",
    "LayerNormalization",
    "MaxPooling1D",
    "MaxPooling2D",
    "MultiHeadAttention",
    "RMSNormalization",
    "Reshape",
]
