//! Parameters of kernels: a struct in Rust, written as a C++ compiler lays out the struct of the
//! same fields.

/// `len` numbers in the memory of a device.
/// What the numbers are is the kernel's business.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Array {
    /// Of the first number.
    pub address: u64,
    /// Numbers, not bytes.
    pub len: u64,
}

impl Array {
    /// `len` numbers of `size` bytes each from number `first` on.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn part(self, size: usize, first: usize, len: usize) -> Array {
        assert!(first + len <= self.len as usize, "{first} + {len} of {} numbers", self.len);
        Array { address: self.address + (first * size) as u64, len: len as u64 }
    }
}

/// The bytes of a kernel's one parameter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Params {
    words: Vec<u64>,
    len: usize,
}

impl Params {
    /// Appends `bytes` at the next multiple of their length, which is 4 or 8.
    fn put(&mut self, bytes: &[u8]) {
        let at = self.len.next_multiple_of(bytes.len());
        self.words.resize((at + bytes.len()).div_ceil(8), 0);
        let mut word = self.words[at / 8].to_le_bytes();
        word[at % 8..at % 8 + bytes.len()].copy_from_slice(bytes);
        self.words[at / 8] = u64::from_le_bytes(word);
        self.len = at + bytes.len();
    }

    /// The bytes, as words: whole ones, for every such struct has an [`Array`] within.
    pub fn words(&self) -> &[u64] {
        &self.words
    }
}

/// A field of a parameter.
pub trait Field {
    /// Appends it.
    fn put(&self, params: &mut Params);
}

impl Field for u32 {
    fn put(&self, params: &mut Params) {
        params.put(&self.to_le_bytes());
    }
}

impl Field for f32 {
    fn put(&self, params: &mut Params) {
        params.put(&self.to_le_bytes());
    }
}

impl Field for Array {
    fn put(&self, params: &mut Params) {
        params.put(&self.address.to_le_bytes());
        params.put(&self.len.to_le_bytes());
    }
}

/// The parameter made of fields, in their order.
macro_rules! params {
    ($($field:expr),* $(,)?) => {{
        let mut params = $crate::params::Params::default();
        $($crate::params::Field::put(&$field, &mut params);)*
        params
    }};
}
pub(crate) use params;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_lie_where_c_has_them() {
        let array = Array { address: 7, len: 9 };
        assert_eq!(params![array, 1u32, 2u32].words(), [7, 9, 2 << 32 | 1]);
        assert_eq!(params![1u32, array, 1f32].words(), [1, 7, 9, 0x3f80_0000]);
    }

    #[test]
    fn a_part_is_within() {
        let array = Array { address: 100, len: 10 };
        assert_eq!(array.part(4, 2, 3), Array { address: 108, len: 3 });
        assert!(std::panic::catch_unwind(|| array.part(4, 8, 3)).is_err());
    }
}
