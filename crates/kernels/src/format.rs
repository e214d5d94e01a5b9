//! The number formats of weights.

/// Numbers per block in the formats that ggml calls legacy, and per sub-block in most others.
pub(crate) const BLOCK: usize = 32;
/// Numbers per super-block, and per chunk of quants: one super-block or eight blocks.
pub(crate) const SUPER_BLOCK: usize = 256;
/// Numbers per chunk of floats.
pub(crate) const FLOAT_CHUNK: usize = 64;

/// The number format of a weight, with ggml's names and layouts.
///
/// A row of weights is a sequence of blocks, each with [`Format::block_len`] numbers in
/// [`Format::block_bytes`] bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(non_camel_case_types, missing_docs)] // The field's own names; the table below says what each is.
pub enum Format {
    F32,
    F16,
    BF16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q2_K,
    Q3_K,
    Q4_K,
    Q5_K,
    Q6_K,
    MXFP4,
    IQ4_NL,
    IQ4_XS,
    IQ1_S,
    IQ1_M,
    IQ2_XXS,
    IQ2_XS,
    IQ2_S,
    IQ3_XXS,
    IQ3_S,
    TQ1_0,
    TQ2_0,
    NVFP4,
    Q1_0,
}

impl Format {
    /// Every format.
    pub const ALL: [Format; 27] = [
        Format::F32,
        Format::F16,
        Format::BF16,
        Format::Q4_0,
        Format::Q4_1,
        Format::Q5_0,
        Format::Q5_1,
        Format::Q8_0,
        Format::Q2_K,
        Format::Q3_K,
        Format::Q4_K,
        Format::Q5_K,
        Format::Q6_K,
        Format::MXFP4,
        Format::IQ4_NL,
        Format::IQ4_XS,
        Format::IQ1_S,
        Format::IQ1_M,
        Format::IQ2_XXS,
        Format::IQ2_XS,
        Format::IQ2_S,
        Format::IQ3_XXS,
        Format::IQ3_S,
        Format::TQ1_0,
        Format::TQ2_0,
        Format::NVFP4,
        Format::Q1_0,
    ];

    /// Name, numbers per block, bytes per block.
    const fn row(self) -> (&'static str, usize, usize) {
        match self {
            Format::F32 => ("F32", 1, 4),
            Format::F16 => ("F16", 1, 2),
            Format::BF16 => ("BF16", 1, 2),
            // scale, 4-bit quants
            Format::Q4_0 => ("Q4_0", 32, 2 + 16),
            // scale, offset, 4-bit quants
            Format::Q4_1 => ("Q4_1", 32, 2 + 2 + 16),
            // scale, fifth bits, 4-bit quants
            Format::Q5_0 => ("Q5_0", 32, 2 + 4 + 16),
            // scale, offset, fifth bits, 4-bit quants
            Format::Q5_1 => ("Q5_1", 32, 2 + 2 + 4 + 16),
            // scale, quants
            Format::Q8_0 => ("Q8_0", 32, 2 + 32),
            // 4-bit scales and minima of 16 sub-blocks, 2-bit quants, their scales
            Format::Q2_K => ("Q2_K", 256, 16 + 64 + 2 + 2),
            // third bits, 2-bit quants, 6-bit scales of 16 sub-blocks, their scale
            Format::Q3_K => ("Q3_K", 256, 32 + 64 + 12 + 2),
            // scales, 6-bit scales and minima of 8 sub-blocks, 4-bit quants
            Format::Q4_K => ("Q4_K", 256, 2 + 2 + 12 + 128),
            // scales, 6-bit scales and minima of 8 sub-blocks, fifth bits, 4-bit quants
            Format::Q5_K => ("Q5_K", 256, 2 + 2 + 12 + 32 + 128),
            // 4-bit quants, upper two bits, 8-bit scales of 16 sub-blocks, their scale
            Format::Q6_K => ("Q6_K", 256, 128 + 64 + 16 + 2),
            // exponent, 4-bit floats
            Format::MXFP4 => ("MXFP4", 32, 1 + 16),
            // scale, 4-bit codebook indices
            Format::IQ4_NL => ("IQ4_NL", 32, 2 + 16),
            // scale, 6-bit scales of 8 sub-blocks, 4-bit codebook indices
            Format::IQ4_XS => ("IQ4_XS", 256, 2 + 2 + 4 + 128),
            // scale, lower bits of patterns; their upper bits, scales and directions of 8
            // sub-blocks
            Format::IQ1_S => ("IQ1_S", 256, 2 + 32 + 16),
            // lower bits of patterns, upper ones with directions, scales of 16 sub-blocks with
            // their scale
            Format::IQ1_M => ("IQ1_M", 256, 32 + 16 + 8),
            // scale; patterns, signs and scales of 8 sub-blocks
            Format::IQ2_XXS => ("IQ2_XXS", 256, 2 + 64),
            // scale, patterns with signs, 4-bit scales of 16 sub-blocks
            Format::IQ2_XS => ("IQ2_XS", 256, 2 + 64 + 8),
            // scale, lower bits of patterns, signs, upper bits of patterns, 4-bit scales of 16
            // sub-blocks
            Format::IQ2_S => ("IQ2_S", 256, 2 + 32 + 32 + 8 + 8),
            // scale, patterns, signs with scales of 8 sub-blocks
            Format::IQ3_XXS => ("IQ3_XXS", 256, 2 + 64 + 32),
            // scale, lower bits of patterns, their ninth bits, signs, 4-bit scales of 8 sub-blocks
            Format::IQ3_S => ("IQ3_S", 256, 2 + 64 + 8 + 32 + 4),
            // bytes of five ternary digits, bytes of four, scale
            Format::TQ1_0 => ("TQ1_0", 256, 48 + 4 + 2),
            // 2-bit quants, scale
            Format::TQ2_0 => ("TQ2_0", 256, 64 + 2),
            // 8-bit floats that scale 16 numbers each, 4-bit floats
            Format::NVFP4 => ("NVFP4", 64, 4 + 32),
            // scale, signs
            Format::Q1_0 => ("Q1_0", 128, 2 + 16),
        }
    }

    /// ggml's name.
    pub const fn name(self) -> &'static str {
        self.row().0
    }

    /// Numbers per block.
    pub const fn block_len(self) -> usize {
        self.row().1
    }

    /// Bytes per block.
    pub const fn block_bytes(self) -> usize {
        self.row().2
    }

    /// Bytes of a row of `width` numbers; `None` if they aren't a whole number of blocks, or
    /// overflow.
    pub const fn row_bytes(self, width: usize) -> Option<usize> {
        if width.is_multiple_of(self.block_len()) {
            (width / self.block_len()).checked_mul(self.block_bytes())
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_whole_blocks() {
        assert_eq!(Format::Q4_0.row_bytes(64), Some(36));
        assert_eq!(Format::Q4_0.row_bytes(40), None);
        assert_eq!(Format::MXFP4.row_bytes(2880), Some(1530));
        assert_eq!(Format::F32.row_bytes(usize::MAX), None);
        assert_eq!(Format::Q6_K.row_bytes(512), Some(420));
    }
}
