//! CPU work on quantized blocks. Knows nothing of models, files or tokens, and is the only crate, beside the file
//! that maps a model, that may contain `unsafe`.

mod view;

pub use view::{ViewError, view};
