//! The most likely permitted tokens.

use crate::params::params;
use crate::{Array, Device, Error, Launch, Memory, Result};

/// Logits scanned per thread block.
const SLICE: usize = 8192;

/// The largest number of candidates.
pub const MAX_TOP_K: usize = 256;

/// The `wanted` greatest finite numbers of `logits: [count]`, in descending order, equal ones by
/// index.
/// Only indices whose bit is set in `mask: [ceil(count / 32)]` count, or all if it is empty.
/// `values`, `tokens`: `[wanted]`; padded with minus infinity.
/// At most [`MAX_TOP_K`].
///
/// # Errors
/// If `wanted` is zero or too large, or the device fails.
pub fn candidates<D: Device>(
    device: &D,
    logits: Array,
    mask: Array,
    values: Array,
    tokens: Array,
) -> Result<()> {
    let wanted = values.len as usize;
    if wanted == 0 || wanted > MAX_TOP_K || tokens.len != values.len || logits.len == 0 {
        let message = format!("{wanted} of {} logits", logits.len);
        return Err(Error::Shape { operation: "candidates", message });
    }
    let launch = |logits: Array, ids: Array, mask: Array, slice: usize, values: Array, tokens: Array| {
        let blocks = (logits.len as usize).div_ceil(slice);
        device.launch(&Launch {
            kernel: "alara_candidates".into(),
            grid: [blocks as u32, 1, 1],
            threads: 256,
            shared: 0,
            params: params![logits, ids, mask, values, tokens, slice as u32, wanted as u32],
        })
    };
    let blocks = (logits.len as usize).div_ceil(SLICE);
    if blocks == 1 {
        return launch(logits, Array::default(), mask, SLICE, values, tokens);
    }
    // Select from each slice, then from the results.
    let buffer = device.alloc(8 * blocks * wanted)?;
    let len = (blocks * wanted) as u64;
    let found = Array { address: buffer.address(), len };
    let ids = Array { address: buffer.address() + 4 * len, len };
    launch(logits, Array::default(), mask, SLICE, found, ids)?;
    launch(found, ids, Array::default(), blocks * wanted, values, tokens)
}
