//! What stands in a model file, and what the engine makes of it: for `models show`, `models verify`
//! and `debug`.
//!
//! Whoever runs a model needs none of it.

pub use crate::architecture::Architecture;
pub use crate::backend::native::computes;
pub use crate::backend::{Kernel, PlanEntry, kernel_plan};
pub use crate::chat::{ChatTemplate, ParseOptions, Prompt, Thinking};
pub use crate::device::gpus;
pub use crate::engine::{Chosen, chat_template};
pub use crate::facts::{Facts, Sizes};
pub use crate::gguf::{Array, GgufError, Metadata, Strings, TensorInfo, TensorType, Value, Writer};
pub use crate::grammar::Grammar;
pub use crate::memory::{MemoryBreakdown, MemoryEstimate};
pub use crate::placement::Placement;
pub use crate::tokenizer::{Tokenizer, TokenizerError};
