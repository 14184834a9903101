// The same text as C++11.
#include "test_header.c"
