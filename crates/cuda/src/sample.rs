//! The likeliest tokens that are allowed.

use crate::params::params;
use crate::{Array, Device, Error, Launch, Memory, Result};

/// Logits that a block of threads looks through.
const SLICE: usize = 8192;

/// The most candidates that can be asked for.
pub const MAX_TOP_K: usize = 256;

/// The `wanted` greatest finite ones of `logits: [count]`, descending, of equal ones the lower
/// number first.
/// Only those count whose bit is set in `mask: [ceil(count / 32)]`, or all if it is empty.
/// `values`, `tokens`: `[wanted]`; where there are no more, minus infinity.
/// Never more than [`MAX_TOP_K`].
///
/// # Errors
/// If nothing or too many are wanted, or the device fails.
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
    // Those of each slice, and of these again.
    let buffer = device.alloc(8 * blocks * wanted)?;
    let len = (blocks * wanted) as u64;
    let found = Array { address: buffer.address(), len };
    let ids = Array { address: buffer.address() + 4 * len, len };
    launch(logits, Array::default(), mask, SLICE, found, ids)?;
    launch(found, ids, Array::default(), blocks * wanted, values, tokens)
}
