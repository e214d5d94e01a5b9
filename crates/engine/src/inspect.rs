//! What stands in a model file, and what the engine makes of it: for `models show`, `models verify`
//! and `debug`.
//!
//! Whoever runs a model needs none of it.

pub use crate::architecture::{Architecture, tokenizer};
pub use crate::backend::native::computes;
pub use crate::backend::{Kernel, PlanEntry, kernel_plan};
pub use crate::device::gpus;
pub use crate::engine::{Chosen, chat_template};
pub use crate::facts::{Facts, Sizes};
pub use crate::memory::{MemoryBreakdown, MemoryEstimate};
pub use crate::placement::Placement;
pub use alara_text::chat::{ChatTemplate, ParseOptions, Prompt, Thinking};
pub use alara_text::gguf::{Array, GgufError, Metadata, Strings, TensorInfo, TensorType, Value, Writer};
pub use alara_text::grammar::Grammar;
pub use alara_text::tokenizer::{Tokenizer, TokenizerError};
