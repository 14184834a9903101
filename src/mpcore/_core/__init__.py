"""The boundary to the C library: declarations, adaptation of arrays, errors."""
