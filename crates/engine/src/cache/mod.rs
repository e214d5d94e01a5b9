//! The KV cache: blocks of keys and values, recurrent states, their holders, and the prefix cache
//! from which later requests can continue.
//! Pure bookkeeping; the backend has the actual numbers.

mod blocks;
pub mod disk;
mod eviction;
pub mod host;
mod prefixes;
mod table;
mod tree;

pub use blocks::{BlockId, BlockTable, Blocks, Layout};
pub use prefixes::{Hit, MissReason, Prefix, PrefixLocation, Prefixes, SNAPSHOT_EVERY, SNAPSHOT_MIN_GAIN};
pub use table::{BLOCK_TOKENS, Cache, CacheConfig, OutOfMemory, SlotId, Snapshot, Table};
