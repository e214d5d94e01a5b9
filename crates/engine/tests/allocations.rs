//! Counts the allocations of a step once its buffers exist.
#![allow(unsafe_code, clippy::unwrap_used)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use alara_engine::{Gguf, KvType, Probe, ProbeSettings};

/// Counts allocations.
struct Counter;

static COUNT: AtomicUsize = AtomicUsize::new(0);

// SAFETY: forwards everything to the system's allocator.
unsafe impl GlobalAlloc for Counter {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.fetch_add(1, Relaxed);
        // SAFETY: upheld by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: upheld by the caller.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counter = Counter;

#[test]
fn layers_allocate_nothing_for_a_token() {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/alara-tiny.gguf");
    let gguf = Gguf::open(&model).unwrap();
    let settings = ProbeSettings { kv: KvType::F16, threads: 2, ..ProbeSettings::default() };
    let mut probe = Probe::load(&gguf, 64, &settings).unwrap();
    let counts: Vec<usize> = (0..24)
        .map(|_| {
            let before = COUNT.load(Relaxed);
            let logits = probe.feed(&[7], 1).unwrap();
            let count = COUNT.load(Relaxed) - before;
            assert_eq!(logits.len(), probe.vocabulary());
            count
        })
        .collect();
    // Four for the step: tokens, outputs, spans and their blocks.
    // Four more: cosines, sines and the returned logits; the model has five layers, so one
    // allocation per layer would exceed the limit.
    // A thread allocates its buffers with its first task, which may come late.
    let more = counts[1..].iter().filter(|&&count| count > 8);
    assert!(more.clone().count() <= 2 && more.sum::<usize>() <= 28, "{counts:?}");
}
