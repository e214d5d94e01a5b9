//! Keys and values that stay: blocks of tokens, who holds them, and the prefixes that a later request can share.
//! Pure bookkeeping; the numbers themselves lie with the backend.

mod blocks;
mod prefixes;

pub use blocks::{BlockId, BlockTable, Blocks, Layout};
pub use prefixes::Prefixes;
