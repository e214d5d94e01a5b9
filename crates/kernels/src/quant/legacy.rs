//! ggml's first formats: blocks of 32, which begin with the half-precision scale.
//! In all formats of 4 and 5 bits the lower nibbles are quants 0..16 and the upper ones quants
//! 16..32.
#![allow(non_camel_case_types)] // ggml's names.

use super::Block;
use crate::Format;

/// 4-bit quants minus 8.
pub(crate) struct Q4_0;
/// Offset and 4-bit quants.
pub(crate) struct Q4_1;
/// 5-bit quants minus 16; the fifth bits are separate, in 4 bytes.
pub(crate) struct Q5_0;
/// Offset and 5-bit quants.
pub(crate) struct Q5_1;
/// 8-bit quants.
pub(crate) struct Q8_0;

/// The nibbles of sixteen bytes.
#[inline(always)]
pub(super) fn nibbles(bytes: &[u8]) -> [u8; 32] {
    let mut quants = [0; 32];
    for (i, &byte) in bytes[..16].iter().enumerate() {
        quants[i] = byte & 15;
        quants[i + 16] = byte >> 4;
    }
    quants
}

/// Fifth bits and nibbles.
#[inline(always)]
fn five_bits(bytes: &[u8]) -> [u8; 32] {
    let fifth = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    let mut quants = nibbles(&bytes[4..]);
    for (i, quant) in quants.iter_mut().enumerate() {
        *quant |= ((fifth >> i & 1) << 4) as u8;
    }
    quants
}

impl Block for Q4_0 {
    const FORMAT: Format = Format::Q4_0;

    #[inline(always)]
    fn quants(block: &[u8]) -> [i8; 32] {
        nibbles(&block[2..]).map(|quant| quant as i8 - 8)
    }
}

impl Block for Q4_1 {
    const FORMAT: Format = Format::Q4_1;
    const OFFSET: bool = true;

    #[inline(always)]
    fn quants(block: &[u8]) -> [i8; 32] {
        nibbles(&block[4..]).map(|quant| quant as i8)
    }
}

impl Block for Q5_0 {
    const FORMAT: Format = Format::Q5_0;

    #[inline(always)]
    fn quants(block: &[u8]) -> [i8; 32] {
        five_bits(&block[2..]).map(|quant| quant as i8 - 16)
    }
}

impl Block for Q5_1 {
    const FORMAT: Format = Format::Q5_1;
    const OFFSET: bool = true;

    #[inline(always)]
    fn quants(block: &[u8]) -> [i8; 32] {
        five_bits(&block[4..]).map(|quant| quant as i8)
    }
}

impl Block for Q8_0 {
    const FORMAT: Format = Format::Q8_0;

    #[inline(always)]
    fn quants(block: &[u8]) -> [i8; 32] {
        let mut quants = [0; 32];
        for (quant, &byte) in quants.iter_mut().zip(&block[2..34]) {
            *quant = byte as i8;
        }
        quants
    }
}
