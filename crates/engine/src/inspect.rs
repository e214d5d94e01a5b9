//! Reports on a model file's contents and their interpretation, for `models show`, `models verify`
//! and `debug`.
//!
//! Running a model doesn't need this module.

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
