//! alara-harness
