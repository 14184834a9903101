"""Layers: building blocks of models, each a composition of `mpcore.ops`."""

from mpcore.layers.activation import Activation
from mpcore.layers.attention import MultiHeadAttention
from mpcore.layers.conv import Conv1D, Conv2D
from mpcore.layers.dense import Dense
from mpcore.layers.dropout import Dropout
from mpcore.layers.flatten import Flatten
from mpcore.layers.gru import GRU
from mpcore.layers.layer import Layer
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

__all__ = [
    "GRU",
    "Activation",
    "AveragePooling1D",
    "AveragePooling2D",
    "Conv1D",
    "Conv2D",
    "Dense",
    "Dropout",
    "Flatten",
    "GlobalAveragePooling1D",
    "GlobalAveragePooling2D",
    "GlobalMaxPooling1D",
    "GlobalMaxPooling2D",
    "Layer",
    "MaxPooling1D",
    "MaxPooling2D",
    "MultiHeadAttention",
]
