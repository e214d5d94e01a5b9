//! Waiting without the interpreter's lock, with an eye on Ctrl-C.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use pyo3::prelude::*;

/// How often signals are looked for.
pub const BEAT: Duration = Duration::from_millis(50);

/// What comes next; `None` once nobody can send any more.
///
/// # Errors
/// What a handler of a signal raises: Ctrl-C is `KeyboardInterrupt`.
/// It is still to come then.
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

/// Does `work` without the interpreter's lock.
///
/// # Errors
/// What a handler of a signal raises, once the work is done: it can't be left half done.
pub fn work<T: Send>(py: Python, work: impl FnOnce() -> T + Send) -> PyResult<T> {
    let value = py.detach(work);
    py.check_signals()?;
    Ok(value)
}
