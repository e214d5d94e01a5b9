//! Formats of sub-blocks of 16 with float scales; larger blocks count as several sub-blocks.

use super::SubBlock;
use super::codebook::E2M1;
use super::half_at;
use crate::Format;

/// 4-bit floats as in MXFP4, with an 8-bit float scale per sixteen.
pub(crate) struct NVFP4;
/// One bit per number, -1 or 1, with a scale per 128.
#[allow(non_camel_case_types)]
pub(crate) struct Q1_0;

/// Half of an unsigned E4M3 float, because [`E2M1`] is doubled; NaN becomes zero.
static HALF_E4M3: [f32; 256] = {
    let mut values = [0.0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (exponent, mantissa) = (byte as u32 >> 3 & 15, byte as u32 & 7);
        values[byte] = match exponent {
            _ if byte == 0x7f => 0.0,
            0 => mantissa as f32 / 1024.0,
            _ => f32::from_bits((exponent + 119) << 23 | mantissa << 20),
        };
        byte += 1;
    }
    values
};

impl SubBlock for NVFP4 {
    const FORMAT: Format = Format::NVFP4;

    #[inline(always)]
    fn scales(chunk: &[u8]) -> [f32; 16] {
        std::array::from_fn(|i| HALF_E4M3[usize::from(chunk[i / 4 * 36 + i % 4])])
    }

    /// After four scales, eight bytes per sixteen quants, lower nibbles first.
    #[inline(always)]
    fn quants(chunk: &[u8]) -> [i8; 256] {
        std::array::from_fn(|i| {
            let byte = chunk[i / 64 * 36 + 4 + i % 64 / 16 * 8 + i % 8];
            E2M1[usize::from(byte >> (i / 8 % 2 * 4) & 15)]
        })
    }
}

impl SubBlock for Q1_0 {
    const FORMAT: Format = Format::Q1_0;

    #[inline(always)]
    fn scales(chunk: &[u8]) -> [f32; 16] {
        let two = [half_at(chunk, 0), half_at(chunk, 18)];
        std::array::from_fn(|i| two[i / 8])
    }

    #[inline(always)]
    fn quants(chunk: &[u8]) -> [i8; 256] {
        std::array::from_fn(|i| {
            let bit = chunk[i / 128 * 18 + 2 + i % 128 / 8] >> (i % 8) & 1;
            2 * bit as i8 - 1
        })
    }
}
