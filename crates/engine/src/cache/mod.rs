//! What stays of sequences: blocks of keys and values, recurrent states, who holds them, and the
//! prefixes that a later request can go on from.
//! Pure bookkeeping; the numbers themselves lie with the backend.

mod blocks;
pub mod disk;
mod eviction;
pub mod host;
mod prefixes;
mod table;
mod tree;

pub use blocks::{BlockId, BlockTable, Blocks, Layout};
pub use prefixes::{Held, Hit, Prefix, Prefixes, SNAPSHOT_EVERY, SNAPSHOT_GAIN, Stop};
pub use table::{BLOCK_TOKENS, Cache, Lack, Room, SlotId, Snapshot, Table};
