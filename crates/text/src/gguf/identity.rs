//! Identifies the model in a file without reading all of it.

use sha2::{Digest, Sha256};

use super::Gguf;

/// Bytes hashed at the beginning and at the end of each tensor.
const SAMPLE: usize = 2048;

impl Gguf {
    /// Identifies the model by a hash of sizes, all metadata, the tensor table and samples of every
    /// tensor.
    /// The hash includes the file's modification time, so that a file whose weights were changed
    /// anywhere counts as another model.
    /// It doesn't depend on the path.
    /// Reads a few MiB.
    pub fn identity(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        for (number, (_, part)) in self.inner.parts.iter().enumerate() {
            let tensors = || self.inner.tensors.iter().filter(|info| info.part == number);
            let first = tensors().map(|info| info.start as usize).min().unwrap_or(part.len());
            hash.update((part.len() as u64).to_le_bytes());
            part.stamp().iter().for_each(|number| hash.update(number.to_le_bytes()));
            hash.update(&part[..first]);
            for info in tensors() {
                let data = self.data(info);
                hash.update(&data[..data.len().min(SAMPLE)]);
                hash.update(&data[data.len().saturating_sub(SAMPLE)..]);
            }
        }
        hash.finalize().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn another_file_under_the_same_name_is_another_model() {
        let folder = tempfile::tempdir().expect("there is room");
        let case = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/arch/qwen3-exact/model.gguf");
        let path = folder.path().join("model.gguf");
        let identity = || Gguf::open(&path).expect("it is a model").identity();
        fs::copy(case, &path).expect("it can be copied");
        let before = identity();
        assert_eq!(before, identity());
        // Change one bit in the middle of the weights, and restore the modification time.
        let time = fs::metadata(&path).and_then(|about| about.modified()).expect("it has one");
        let mut bytes = fs::read(&path).expect("it can be read");
        let middle = bytes.len() * 3 / 4;
        bytes[middle] ^= 1;
        fs::write(&path, &bytes).expect("it can be written");
        fs::File::open(&path).and_then(|file| file.set_modified(time)).expect("it is ours");
        assert_ne!(before, identity());
        // The path doesn't count, and data in memory has no modification time.
        let owned = |bytes: &[u8]| Gguf::from_vec("any", bytes.to_vec()).expect("a model").identity();
        assert_eq!(owned(&bytes), owned(&bytes));
        let first = owned(&bytes);
        let end = bytes.len() - 1;
        bytes[end] ^= 1;
        assert_ne!(first, owned(&bytes));
    }
}
