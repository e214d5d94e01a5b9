//! The layers of a decoder: each loads the tensors that are present and computes through a
//! backend's ops.

mod attention;
mod delta;
mod experts;
mod ffn;
mod linear;
mod mamba2;
mod mla;
mod norm;
mod per_layer;
mod rope;
mod shortconv;
mod token_mixer;
mod weights;

pub use attention::Attention;
pub use delta::Delta;
pub use experts::Experts;
pub use ffn::Ffn;
pub use linear::Linear;
pub use mamba2::Mamba2;
pub use mla::Mla;
pub use norm::{Norm, normed};
pub use per_layer::{PerLayer, PerLayerInput, PerLayerTable};
pub use rope::{Rope, Rotation, rope_width, score_factor, windowed_rope_width};
pub use shortconv::ShortConv;
pub use token_mixer::{CacheSlice, LayerCache, TokenMixer};
pub use weights::Weights;
