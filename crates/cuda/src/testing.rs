//! What the tests of the kernels share.

/// Numbers between -1 and 1, the same for the same seed.
#[cfg(twin)]
pub(crate) fn noise(seed: u64, len: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(0x1234_5678_9abc_def1);
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    std::iter::repeat_with(next).take(len).collect()
}

/// Fails where `y` is off by more than `tolerance`, relative to the exact value where that is beyond 1.
#[cfg(twin)]
#[track_caller]
pub(crate) fn assert_close(y: &[f32], exact: &[f32], tolerance: f32, what: &str) {
    assert_eq!(y.len(), exact.len(), "{what}");
    for (i, (&y, &exact)) in y.iter().zip(exact).enumerate() {
        assert!((y - exact).abs() <= tolerance * exact.abs().max(1.0), "{what}: number {i}: {y} for {exact}");
    }
}

#[cfg(not(twin))]
#[test]
fn the_twin_needs_a_compiler() {
    println!("skipped: without a C++ compiler on Linux there is no twin, and no kernel is tested");
}

#[cfg(twin)]
pub(crate) use on_twin::*;

#[cfg(twin)]
mod on_twin {
    use crate::twin::{Host, Twin};

    /// The twin in both orders of blocks and threads.
    pub(crate) const TWINS: [Twin; 2] = [Twin { descending: false }, Twin { descending: true }];

    /// Floats in memory.
    pub(crate) fn floats(numbers: &[f32]) -> Host {
        Host::of(&numbers.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>())
    }

    /// Whole numbers in memory.
    pub(crate) fn words(numbers: &[u32]) -> Host {
        Host::of(&numbers.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>())
    }

    /// What floats are in memory.
    pub(crate) fn to_floats(host: &Host) -> Vec<f32> {
        host.bytes().as_chunks::<4>().0.iter().map(|&x| f32::from_le_bytes(x)).collect()
    }

    /// What whole numbers are in memory.
    pub(crate) fn to_words(host: &Host) -> Vec<u32> {
        host.bytes().as_chunks::<4>().0.iter().map(|&x| u32::from_le_bytes(x)).collect()
    }
}
