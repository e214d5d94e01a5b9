// Every kernel: one unit for nvcc, and for the twin.
#include "attend.cu"
#include "delta.cu"
#include "experts.cu"
#include "fused.cu"
#include "matmul.cu"
#include "sample.cu"
