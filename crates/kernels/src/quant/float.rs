//! Float weights, widened exactly.

use super::Float;

/// IEEE single precision.
pub(crate) struct F32;
/// IEEE half precision.
pub(crate) struct F16;
/// The upper half of single precision.
pub(crate) struct BF16;

impl Float for F32 {
    const BYTES: usize = 4;

    #[inline(always)]
    fn widen(bytes: &[u8]) -> f32 {
        f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
    }
}

impl Float for F16 {
    const BYTES: usize = 2;

    #[inline(always)]
    fn widen(bytes: &[u8]) -> f32 {
        super::half_at(bytes, 0)
    }
}

impl Float for BF16 {
    const BYTES: usize = 2;

    #[inline(always)]
    fn widen(bytes: &[u8]) -> f32 {
        f32::from_bits(u32::from(u16::from_le_bytes([bytes[0], bytes[1]])) << 16)
    }
}
