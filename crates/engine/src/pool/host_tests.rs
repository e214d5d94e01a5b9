//! Tests the host memory tier: bitwise on the native backend, and on candle like on a device.

use super::model_tests::{BUDGET, Oracle, SORTS, fixture, pool_on, text};
use super::*;
use crate::backend::candle::Candle;
use crate::backend::native::Native;

/// Asks for static text; returns the found prefix and the logits.
fn ask<B: Backend>(pool: &mut Pool<B>, salt: &str, tokens: &[u32], pinned: usize) -> (FoundPrefix, Vec<f32>) {
    let prefix = Prefix { salt: salt.into(), boundaries: vec![pinned], pinned };
    let mut data = SequenceData::new(tokens.to_vec(), prefix);
    let mut logits = Vec::new();
    while data.pending() > 0 {
        logits = pool.step_and_read(&mut [&mut data], BUDGET);
    }
    pool.finish(&mut data);
    (data.found.unwrap(), logits)
}

/// The prefix found of static text that other text pushed out, and the logits then and at first.
fn pushed_out<B: Backend>(mut pool: Pool<B>) -> (FoundPrefix, Vec<f32>, Vec<f32>) {
    let tokens = [text(0, 100), text(9, 9)].concat();
    let (found, before) = ask(&mut pool, "", &tokens, 100);
    assert_eq!((found.cached, found.disk), (0, 0));
    while pool.evict(OutOfMemory::Snapshots) || pool.evict(OutOfMemory::Blocks) {}
    // Another tenant finds nothing.
    assert_eq!(ask(&mut pool, "other", &tokens, 100).0.cached, 0);
    while pool.evict(OutOfMemory::Snapshots) || pool.evict(OutOfMemory::Blocks) {}
    let (found, after) = ask(&mut pool, "", &tokens, 100);
    (found, before, after)
}

#[test]
fn evicted_static_text_is_restored() {
    for case in SORTS {
        let gguf = fixture(case);
        let native = || pool_on(Native::with_threads(1), &gguf, 640, BUDGET);
        let (found, before, after) = pushed_out(native().with_host_tier(1 << 30));
        assert_eq!((found.cached, found.disk), (100, 0), "{case}");
        assert!(before == after, "{case}: bit for bit");
        let tokens = [text(0, 100), text(9, 9)].concat();
        assert!(Oracle::new(&gguf).logits(&tokens) == after, "{case}");
        // Without the tier the text is recomputed, and with too small a tier as well.
        assert_eq!(pushed_out(native()).0.cached, 0, "{case}");
        assert_eq!(pushed_out(native().with_host_tier(64)).0.cached, 0, "{case}");
    }
}

#[test]
fn it_does_so_on_candle() {
    for case in SORTS {
        let gguf = fixture(case);
        let (found, before, after) =
            pushed_out(pool_on(Candle::cpu(), &gguf, 640, BUDGET).with_host_tier(1 << 30));
        assert_eq!((found.cached, found.disk), (100, 0), "{case}");
        let largest = before.iter().zip(&after).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        // Restored rows are unchanged; the rest may be computed in other pieces.
        assert!(largest < 1e-3, "{case}: {largest}");
    }
}
