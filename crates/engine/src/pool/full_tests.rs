//! A step that fails half way, for want of memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::model_tests::{BUDGET, Oracle, SORTS, fixture, pool_on, text};
use super::*;
use crate::backend::Profiled;
use crate::backend::native::Native;
use crate::backend::scarce::Scarce;

/// Layers before the one that failed have gone on, and recurrent state with them: nobody goes on
/// from there.
#[test]
fn what_a_failed_step_left_is_not_gone_on_from() {
    for case in SORTS {
        let gguf = fixture(case);
        let mut oracle = Oracle::new(&gguf);
        let room = Arc::new(AtomicU64::new(u64::MAX));
        let device = Profiled::new(Native::with_threads(1), Scarce(room.clone()));
        let mut pool = pool_on(device, &gguf, 512, BUDGET);
        let mut run = Run::new(text(0, 70), Prefix::default());
        while run.pending() > 0 {
            pool.step(&mut [&mut run], BUDGET).unwrap();
        }
        run.tokens.push(5);
        room.store(0, Ordering::Relaxed);
        let error = pool.step(&mut [&mut run], BUDGET).unwrap_err().to_string();
        assert!(
            error.starts_with("the GPU's memory is full at: attention, in a step of 1 tokens"),
            "{error}"
        );
        room.store(u64::MAX, Ordering::Relaxed);
        run.finished = true;
        pool.finish(&mut run);
        for more in [vec![5, 9], text(3, 8)] {
            let tokens = [text(0, 70), more].concat();
            let mut other = Run::new(tokens.clone(), Prefix::default());
            let mut logits = Vec::new();
            while other.pending() > 0 {
                logits = pool.step_and_read(&mut [&mut other], BUDGET);
            }
            assert!(oracle.logits(&tokens) == logits, "{case}");
            other.finished = true;
            pool.finish(&mut other);
        }
    }
}
