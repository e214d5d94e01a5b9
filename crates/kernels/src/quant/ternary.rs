//! Super-blocks of numbers that are mostly -1, 0 or 1 times one scale, for models trained that way.
#![allow(non_camel_case_types)] // ggml's names.

use super::{SuperBlock, k};
use crate::Format;

/// Five ternary digits per byte.
pub(crate) struct TQ1_0;
/// Two bits per number.
pub(crate) struct TQ2_0;

/// Digit number `at` of a byte, the most significant first.
/// The byte is 256 / 243 times the number of its five digits, so that multiplying it by three
/// carries one digit out.
#[inline(always)]
fn digit(byte: u8, at: usize) -> u8 {
    let rest = byte.wrapping_mul([1, 3, 9, 27, 81][at]);
    ((u16::from(rest) * 3) >> 8) as u8
}

impl SuperBlock for TQ1_0 {
    const FORMAT: Format = Format::TQ1_0;
    const SCALE_AT: usize = 52;

    /// The first digits of 32 bytes, then their second digits, and so on; likewise of sixteen
    /// bytes;
    /// then four digits of four.
    #[inline(always)]
    fn quants(block: &[u8]) -> [i8; 256] {
        std::array::from_fn(|i| {
            let digit = match i {
                0..160 => digit(block[i % 32], i / 32),
                160..240 => digit(block[32 + i % 16], (i - 160) / 16),
                _ => digit(block[48 + i % 4], (i - 240) / 4),
            };
            digit as i8 - 1
        })
    }
}

impl SuperBlock for TQ2_0 {
    const FORMAT: Format = Format::TQ2_0;
    const SCALE_AT: usize = 64;

    #[inline(always)]
    fn quants(block: &[u8]) -> [i8; 256] {
        k::two_bits(&block[..64]).map(|quant| quant as i8 - 1)
    }
}
