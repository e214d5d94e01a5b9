//! Handles interrupts: the process has one handler, whose action can be changed.

use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::Context;

type Action = Box<dyn Fn() + Send>;

static ACTION: Mutex<Option<Action>> = Mutex::new(None);

/// Sets the action for interrupts from now on.
///
/// # Errors
/// The system rejects the handler.
pub fn does(action: impl Fn() + Send + 'static) -> anyhow::Result<()> {
    let first = lock().replace(Box::new(action)).is_none();
    let handle = || {
        if let Some(action) = &*lock() {
            action();
        }
    };
    if first { ctrlc::set_handler(handle).context("can't catch interrupts") } else { Ok(()) }
}

fn lock() -> MutexGuard<'static, Option<Action>> {
    ACTION.lock().unwrap_or_else(PoisonError::into_inner)
}
