//! Tests a step that fails midway because memory ran out.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::model_tests::{BUDGET, Oracle, SORTS, fixture, pool_on, text};
use super::*;

use crate::backend::native::Native;

/// Layers before the failed one have advanced, including their recurrent state: no sequence
/// continues from there.
#[test]
fn what_a_failed_step_left_is_not_gone_on_from() {
    for case in SORTS {
        let gguf = fixture(case);
        let mut oracle = Oracle::new(&gguf);
        let memory = Arc::new(AtomicU64::new(u64::MAX));
        let device = Native::with_threads(1).with_memory(&memory);
        let mut pool = pool_on(device, &gguf, 512, BUDGET);
        let mut data = SequenceData::new(text(0, 70), Prefix::default());
        while data.pending() > 0 {
            pool.step(&mut [&mut data], BUDGET).unwrap();
        }
        data.tokens.push(5);
        memory.store(0, Ordering::Relaxed);
        let error = pool.step(&mut [&mut data], BUDGET).unwrap_err().to_string();
        assert!(
            error.starts_with("the GPU's memory is full at: attention, in a step of 1 tokens"),
            "{error}"
        );
        memory.store(u64::MAX, Ordering::Relaxed);
        data.finished = true;
        pool.finish(&mut data);
        for more in [vec![5, 9], text(3, 8)] {
            let tokens = [text(0, 70), more].concat();
            let mut other = SequenceData::new(tokens.clone(), Prefix::default());
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
