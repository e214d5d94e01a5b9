//! Limits of stack, time and memory for rendering.
//!
//! `jinja` limits how deep templates and values nest, but in a debug build even that exceeds the
//! default stack of a thread.
//! So templates are compiled and rendered on a larger stack.

use std::io;

use serde_json::{Map, Value};

/// Bytes of the stack that templates are compiled and rendered on; only the pages in use take
/// memory.
const STACK: usize = 256 << 20;

/// Runs `work` on a large stack.
///
/// # Errors
/// If no thread can be started.
pub(super) fn on_deep_stack<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("template".into()).stack_size(STACK);
        let thread = thread.spawn_scoped(scope, work).map_err(|error| no_thread(&error))?;
        thread.join().map_err(|_| io::Error::other("rendering panicked"))
    })
}

/// The error for a system that can't start a thread.
fn no_thread(error: &io::Error) -> io::Error {
    let stack = STACK >> 20;
    io::Error::new(
        error.kind(),
        format!(
            "no thread with {stack} MiB of address space can be had: {error} (ulimit -v and -u tell the limits)"
        ),
    )
}

/// How many instructions a rendering with these variables may execute, which also limits its
/// output.
/// Legitimate templates need a few dozen for each value, and as many again for each message if they
/// look ahead from every message.
pub(super) fn fuel(variables: &Map<String, Value>) -> u64 {
    fn count(value: &Value) -> u64 {
        match value {
            Value::Array(items) => 1 + items.iter().map(count).sum::<u64>(),
            Value::Object(map) => 1 + map.values().map(count).sum::<u64>(),
            Value::String(text) => 1 + text.len() as u64 / 1024,
            _ => 1,
        }
    }
    300_000 + 2_000 * variables.values().map(count).sum::<u64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_comes_back_and_panics_are_errors() {
        assert!(on_deep_stack(|| 1).is_ok_and(|one| one == 1));
        assert!(on_deep_stack(|| panic!("as wanted")).is_err());
        let told = no_thread(&io::ErrorKind::WouldBlock.into()).to_string();
        assert!(told.contains("no thread with 256 MiB") && told.contains("ulimit -v"), "{told}");
    }
}
