# Nothing here is visible from Python; the other modules use it from Cython.
