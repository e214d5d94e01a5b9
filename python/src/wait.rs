//! Waits without the interpreter's lock, checking for Ctrl-C.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use pyo3::prelude::*;

/// Interval between checks for signals.
pub const BEAT: Duration = Duration::from_millis(50);

/// Returns the next message; `None` once the sender is gone.
///
/// # Errors
/// The exception of a signal handler: Ctrl-C raises `KeyboardInterrupt`.
/// The message then remains to be received.
pub fn next<T: Send>(py: Python, receiver: &mut Receiver<T>) -> PyResult<Option<T>> {
    loop {
        let receiver = &mut *receiver;
        match py.detach(move || receiver.recv_timeout(BEAT)) {
            Ok(value) => return Ok(Some(value)),
            Err(RecvTimeoutError::Disconnected) => return Ok(None),
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
        }
    }
}

/// Runs `work` without the interpreter's lock.
///
/// # Errors
/// The exception of a signal handler, raised after the work, which can't be interrupted.
pub fn work<T: Send>(py: Python, work: impl FnOnce() -> T + Send) -> PyResult<T> {
    let value = py.detach(work);
    py.check_signals()?;
    Ok(value)
}
