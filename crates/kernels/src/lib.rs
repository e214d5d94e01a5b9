//! alara-kernels
