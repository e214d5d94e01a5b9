//! The storage types of tensor values.

use std::fmt;

/// The raw type id of a tensor.
/// Any id is a valid value; the table below has names and block sizes of those that ggml defines.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TensorType(pub u32);

macro_rules! tensor_types {
    ($($constant:ident = $id:literal, $values:literal, $bytes:literal;)*) => {
        #[allow(missing_docs, reason = "named as ggml names them")]
        impl TensorType {
            $(pub const $constant: TensorType = TensorType($id);)*
        }
        /// Id, name, values per block, bytes per block.
        const TABLE: &[(u32, &str, u64, u64)] = &[$(($id, stringify!($constant), $values, $bytes)),*];
    };
}

// The missing ids are types that ggml has removed.
// Sizes: the block structs of `ggml-common.h`.
tensor_types! {
    F32 = 0, 1, 4;
    F16 = 1, 1, 2;
    Q4_0 = 2, 32, 18;
    Q4_1 = 3, 32, 20;
    Q5_0 = 6, 32, 22;
    Q5_1 = 7, 32, 24;
    Q8_0 = 8, 32, 34;
    Q8_1 = 9, 32, 36;
    Q2_K = 10, 256, 84;
    Q3_K = 11, 256, 110;
    Q4_K = 12, 256, 144;
    Q5_K = 13, 256, 176;
    Q6_K = 14, 256, 210;
    Q8_K = 15, 256, 292;
    IQ2_XXS = 16, 256, 66;
    IQ2_XS = 17, 256, 74;
    IQ3_XXS = 18, 256, 98;
    IQ1_S = 19, 256, 50;
    IQ4_NL = 20, 32, 18;
    IQ3_S = 21, 256, 110;
    IQ2_S = 22, 256, 82;
    IQ4_XS = 23, 256, 136;
    I8 = 24, 1, 1;
    I16 = 25, 1, 2;
    I32 = 26, 1, 4;
    I64 = 27, 1, 8;
    F64 = 28, 1, 8;
    IQ1_M = 29, 256, 56;
    BF16 = 30, 1, 2;
    TQ1_0 = 34, 256, 54;
    TQ2_0 = 35, 256, 66;
    MXFP4 = 39, 32, 17;
    NVFP4 = 40, 64, 36;
    Q1_0 = 41, 128, 18;
}

impl TensorType {
    fn row(self) -> Option<&'static (u32, &'static str, u64, u64)> {
        TABLE.iter().find(|row| row.0 == self.0)
    }

    /// ggml's name, or `type 97` for an id that is not in the table.
    pub fn name(self) -> String {
        self.row().map_or_else(|| format!("type {}", self.0), |row| row.1.to_owned())
    }

    /// Which file to download instead if tensors of this type aren't supported.
    pub fn instead(self) -> &'static str {
        match self.0 {
            // 4-bit blocks of another layout once had this id, then the MXFP4 of gpt-oss's first
            // files.
            4 => "files of this kind are out of date: download a newer file of the model",
            // Q4_0 and IQ4_NL with rows interleaved for a certain machine, before interleaving
            // moved to load time.
            31..=33 | 36..=38 => "download a Q4_0 file of the model",
            _ => "download a Q4_K_M file of the model",
        }
    }

    /// Values in a block and its size in bytes; `None` for an unknown type.
    /// Rows consist of whole blocks.
    pub fn block(self) -> Option<(u64, u64)> {
        self.row().map(|row| (row.2, row.3))
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.name())
    }
}

impl fmt::Debug for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}
