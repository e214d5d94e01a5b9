//! The layers of a decoder: each loads itself by looking for its tensors and computes through a backend's verbs.

mod attention;
mod ffn;
mod linear;
mod norm;
mod rope;
mod weights;

pub use attention::Attention;
pub use ffn::Ffn;
pub use linear::Linear;
pub use norm::Norm;
pub use rope::Rope;
pub use weights::Weights;
