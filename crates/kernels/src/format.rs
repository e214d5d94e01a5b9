//! The number formats of weights.

/// Number format of a weight: ggml's names and layouts.
///
/// A row of weights is a sequence of blocks, each of [`Format::block_len`] numbers in [`Format::block_bytes`] bytes.
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
}

impl Format {
    /// Every format.
    pub const ALL: [Format; 16] = [
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
    ];

    /// Name, numbers a block, bytes a block.
    const fn row(self) -> (&'static str, usize, usize) {
        match self {
            Format::F32 => ("F32", 1, 4),
            Format::F16 => ("F16", 1, 2),
            Format::BF16 => ("BF16", 1, 2),
            // scale, 4-bit codes
            Format::Q4_0 => ("Q4_0", 32, 2 + 16),
            // scale, offset, 4-bit codes
            Format::Q4_1 => ("Q4_1", 32, 2 + 2 + 16),
            // scale, fifth bits, 4-bit codes
            Format::Q5_0 => ("Q5_0", 32, 2 + 4 + 16),
            // scale, offset, fifth bits, 4-bit codes
            Format::Q5_1 => ("Q5_1", 32, 2 + 2 + 4 + 16),
            // scale, codes
            Format::Q8_0 => ("Q8_0", 32, 2 + 32),
            // 4-bit scales and minima of 16 runs, 2-bit codes, their scales
            Format::Q2_K => ("Q2_K", 256, 16 + 64 + 2 + 2),
            // third bits, 2-bit codes, 6-bit scales of 16 runs, their scale
            Format::Q3_K => ("Q3_K", 256, 32 + 64 + 12 + 2),
            // scales, 6-bit scales and minima of 8 runs, 4-bit codes
            Format::Q4_K => ("Q4_K", 256, 2 + 2 + 12 + 128),
            // scales, 6-bit scales and minima of 8 runs, fifth bits, 4-bit codes
            Format::Q5_K => ("Q5_K", 256, 2 + 2 + 12 + 32 + 128),
            // 4-bit codes, upper two bits, 8-bit scales of 16 runs, their scale
            Format::Q6_K => ("Q6_K", 256, 128 + 64 + 16 + 2),
            // exponent, 4-bit floats
            Format::MXFP4 => ("MXFP4", 32, 1 + 16),
            // scale, 4-bit places in a codebook
            Format::IQ4_NL => ("IQ4_NL", 32, 2 + 16),
            // scale, 6-bit scales of 8 runs, 4-bit places in a codebook
            Format::IQ4_XS => ("IQ4_XS", 256, 2 + 2 + 4 + 128),
        }
    }

    /// ggml's name.
    pub const fn name(self) -> &'static str {
        self.row().0
    }

    /// Numbers in a block.
    pub const fn block_len(self) -> usize {
        self.row().1
    }

    /// Bytes of a block.
    pub const fn block_bytes(self) -> usize {
        self.row().2
    }

    /// Bytes of a row of `width` numbers; `None` if they are no whole number of blocks, or too many to count.
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
