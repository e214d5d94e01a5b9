//! alara-bench
