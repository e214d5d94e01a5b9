//! From what the user typed after `-m` to a model file.
