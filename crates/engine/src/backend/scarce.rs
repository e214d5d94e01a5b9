//! A device whose memory can run out, for tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::profiled::Around;
use crate::Result;

/// What attention may see at once, in bytes of keys and values: a longer sequence finds no room, as
/// on a device where scores need it.
#[derive(Clone, Debug)]
pub struct Scarce(pub Arc<AtomicU64>);

impl Around for Scarce {
    fn run<T>(&mut self, name: &str, (bytes, _): (u64, u64), verb: impl FnOnce() -> Result<T>) -> Result<T> {
        if name == "attention" && bytes > self.0.load(Ordering::Relaxed) {
            // What CUDA's driver says.
            let message = "DriverError(CUDA_ERROR_OUT_OF_MEMORY, \"out of memory\")";
            return Err(crate::device::failed(name, message));
        }
        verb()
    }
}
