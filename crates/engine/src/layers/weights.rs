//! A model file seen as named weights of known shapes.

use std::ops::Range;

use crate::backend::Backend;
use crate::gguf::{Gguf, TensorData, TensorInfo};
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
        self.matrix_rows(name, out, width, 0..out)
    }

    /// The rows `rows` of the matrix `name` of `out` rows of `width`, if there is one. Rows are whole blocks, so a part of
    /// a fused matrix is a view of its bytes.
    ///
    /// # Errors
    /// If its shape or type is another one.
    pub fn matrix_rows(
        &self,
        name: &str,
        out: usize,
        width: usize,
        rows: Range<usize>,
    ) -> Result<Option<B::Matrix>> {
        let Some(info) = self.find(name, &[width as u64, out as u64])? else { return Ok(None) };
        let data = part(self.gguf.data(info), out, &rows);
        let matrix = self.backend.matrix(data, info.kind, rows.len(), width)?;
        matrix.map(Some).ok_or_else(|| self.wrong_type(info))
    }

    /// The vector `name` of `len` numbers, if there is one.
    ///
    /// # Errors
    /// If its shape or type is another one.
    pub fn vector(&self, name: &str, len: usize) -> Result<Option<B::Vector>> {
        self.vector_part(name, len, 0..len)
    }

    /// The numbers `range` of the vector `name` of `len` numbers, if there is one.
    ///
    /// # Errors
    /// If its shape or type is another one.
    pub fn vector_part(&self, name: &str, len: usize, range: Range<usize>) -> Result<Option<B::Vector>> {
        let Some(info) = self.find(name, &[len as u64])? else { return Ok(None) };
        let vector = self.backend.vector(part(self.gguf.data(info), len, &range), info.kind)?;
        vector.map(Some).ok_or_else(|| self.wrong_type(info))
    }

    fn find(&self, name: &str, shape: &[u64]) -> Result<Option<&TensorInfo>> {
        let Some(info) = self.gguf.tensor(name) else { return Ok(None) };
        // Trailing ones mean nothing.
        let found =
            info.shape.iter().rposition(|&n| n != 1).map_or(&info.shape[..0], |last| &info.shape[..=last]);
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

/// The bytes of the rows `range` of `rows` equal ones.
fn part(data: TensorData, rows: usize, range: &Range<usize>) -> TensorData {
    if range.len() == rows {
        return data;
    }
    let row = data.len() / rows;
    data.slice(row * range.start..row * range.end)
}
