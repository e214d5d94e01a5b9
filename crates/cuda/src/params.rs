//! Parameters of kernels: Rust structs, written in the layout that a C++ compiler gives a struct of
//! the same fields.

/// `len` numbers in device memory.
/// The kernel knows their type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Array {
    /// Address of the first number.
    pub address: u64,
    /// Length in numbers, not bytes.
    pub len: u64,
}

impl Array {
    /// The `len` numbers of `size` bytes each from number `first` on.
    ///
    /// # Panics
    /// If the array is too short.
    pub fn part(self, size: usize, first: usize, len: usize) -> Array {
        assert!(first + len <= self.len as usize, "{first} + {len} of {} numbers", self.len);
        Array { address: self.address + (first * size) as u64, len: len as u64 }
    }
}

/// The bytes of a kernel's single parameter.
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

    /// The bytes as words: always whole words, since every such struct contains an [`Array`].
    pub fn words(&self) -> &[u64] {
        &self.words
    }
}

/// A field of a parameter.
pub trait Field {
    /// Appends the field.
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

/// Builds a parameter from fields, in order.
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
