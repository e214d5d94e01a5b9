//! ggml's first formats: blocks of 32, the scale in half precision first.
//! In all that follow the lower nibbles are codes 0..16 and the upper ones codes 16..32.

use super::Run;
use super::half_at;
use crate::Format;

/// 4-bit codes minus 8.
#[allow(non_camel_case_types)]
pub(crate) struct Q4_0;
/// Offset and 4-bit codes.
#[allow(non_camel_case_types)]
pub(crate) struct Q4_1;
/// 5-bit codes minus 16; the fifth bits together in 4 bytes.
#[allow(non_camel_case_types)]
pub(crate) struct Q5_0;
/// Offset and 5-bit codes.
#[allow(non_camel_case_types)]
pub(crate) struct Q5_1;
/// 8-bit codes.
#[allow(non_camel_case_types)]
pub(crate) struct Q8_0;

/// The nibbles of sixteen bytes.
#[inline(always)]
pub(super) fn nibbles(bytes: &[u8]) -> [u8; 32] {
    let mut codes = [0; 32];
    for (i, &byte) in bytes[..16].iter().enumerate() {
        codes[i] = byte & 15;
        codes[i + 16] = byte >> 4;
    }
    codes
}

/// Fifth bits and nibbles.
#[inline(always)]
fn five_bits(bytes: &[u8]) -> [u8; 32] {
    let fifth = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    let mut codes = nibbles(&bytes[4..]);
    for (i, code) in codes.iter_mut().enumerate() {
        *code |= ((fifth >> i & 1) << 4) as u8;
    }
    codes
}

impl Run for Q4_0 {
    const FORMAT: Format = Format::Q4_0;

    #[inline(always)]
    fn scale(block: &[u8]) -> f32 {
        half_at(block, 0)
    }

    #[inline(always)]
    fn codes(block: &[u8]) -> [i8; 32] {
        nibbles(&block[2..]).map(|code| code as i8 - 8)
    }
}

impl Run for Q4_1 {
    const FORMAT: Format = Format::Q4_1;
    const OFFSET: bool = true;

    #[inline(always)]
    fn scale(block: &[u8]) -> f32 {
        half_at(block, 0)
    }

    #[inline(always)]
    fn offset(block: &[u8]) -> f32 {
        half_at(block, 2)
    }

    #[inline(always)]
    fn codes(block: &[u8]) -> [i8; 32] {
        nibbles(&block[4..]).map(|code| code as i8)
    }
}

impl Run for Q5_0 {
    const FORMAT: Format = Format::Q5_0;

    #[inline(always)]
    fn scale(block: &[u8]) -> f32 {
        half_at(block, 0)
    }

    #[inline(always)]
    fn codes(block: &[u8]) -> [i8; 32] {
        five_bits(&block[2..]).map(|code| code as i8 - 16)
    }
}

impl Run for Q5_1 {
    const FORMAT: Format = Format::Q5_1;
    const OFFSET: bool = true;

    #[inline(always)]
    fn scale(block: &[u8]) -> f32 {
        half_at(block, 0)
    }

    #[inline(always)]
    fn offset(block: &[u8]) -> f32 {
        half_at(block, 2)
    }

    #[inline(always)]
    fn codes(block: &[u8]) -> [i8; 32] {
        five_bits(&block[4..]).map(|code| code as i8)
    }
}

impl Run for Q8_0 {
    const FORMAT: Format = Format::Q8_0;

    #[inline(always)]
    fn scale(block: &[u8]) -> f32 {
        half_at(block, 0)
    }

    #[inline(always)]
    fn codes(block: &[u8]) -> [i8; 32] {
        let mut codes = [0; 32];
        for (code, &byte) in codes.iter_mut().zip(&block[2..34]) {
            *code = byte as i8;
        }
        codes
    }
}
