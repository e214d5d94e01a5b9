//! A model file seen as named weights of known shapes.

use crate::backend::Backend;
use crate::gguf::{Gguf, TensorInfo};
use crate::{Error, Result};

/// Finds tensors, checks their shapes and hands them to a backend.
#[derive(Debug)]
pub struct Weights<'a, B> {
    /// The file.
    pub gguf: &'a Gguf,
    /// Who will compute with them.
    pub backend: &'a B,
}

impl<B: Backend> Weights<'_, B> {
    /// The error for a required tensor that is not there.
    pub fn missing(&self, name: &str) -> Error {
        Error::MissingTensor { file: self.gguf.name().into(), name: name.into() }
    }

    /// The matrix `name` of `out` rows of `width`, if there is one.
    ///
    /// # Errors
    /// If its shape or type is another one.
    pub fn matrix(&self, name: &str, out: usize, width: usize) -> Result<Option<B::Matrix>> {
        let Some(info) = self.find(name, &[width as u64, out as u64])? else { return Ok(None) };
        let matrix = self.backend.matrix(self.gguf.data(info), info.kind, out, width)?;
        matrix.map(Some).ok_or_else(|| self.wrong_type(info))
    }

    /// The vector `name` of `len` numbers, if there is one.
    ///
    /// # Errors
    /// If its shape or type is another one.
    pub fn vector(&self, name: &str, len: usize) -> Result<Option<B::Vector>> {
        let Some(info) = self.find(name, &[len as u64])? else { return Ok(None) };
        let vector = self.backend.vector(self.gguf.data(info), info.kind)?;
        vector.map(Some).ok_or_else(|| self.wrong_type(info))
    }

    fn find(&self, name: &str, shape: &[u64]) -> Result<Option<&TensorInfo>> {
        let Some(info) = self.gguf.tensor(name) else { return Ok(None) };
        // Trailing ones mean nothing.
        let found = info.shape.iter().rposition(|&n| n != 1).map_or(&info.shape[..0], |last| &info.shape[..=last]);
        let wanted = shape.iter().rposition(|&n| n != 1).map_or(&shape[..0], |last| &shape[..=last]);
        if found != wanted {
            return Err(Error::TensorShape {
                file: self.gguf.name().into(),
                name: name.into(),
                found: info.shape.clone(),
                expected: shape.to_vec(),
            });
        }
        Ok(Some(info))
    }

    fn wrong_type(&self, info: &TensorInfo) -> Error {
        Error::TensorType {
            file: self.gguf.name().into(),
            name: info.name.clone(),
            kind: info.kind.name().to_string(),
        }
    }
}
