//! Access to a model file as named weights of known shapes.

use std::ops::Range;

use alara_text::gguf::{TensorData, TensorInfo};

use crate::backend::{Backend, StackShape};
use crate::facts::Facts;
use crate::{Error, Result};

/// Finds tensors, checks their shapes and passes them to a backend.
#[derive(Debug)]
pub struct Weights<'a, B> {
    /// The model.
    pub facts: &'a Facts<'a>,
    /// The backend that will compute with them.
    pub backend: &'a B,
}

impl<B: Backend> Weights<'_, B> {
    /// The error for a missing required tensor.
    pub fn missing(&self, name: &str) -> Error {
        Error::MissingTensor { file: self.facts.gguf.name().into(), name: name.into() }
    }

    /// Whether the tensor `name` exists.
    pub fn has(&self, name: &str) -> bool {
        self.facts.tensor(name).is_some()
    }

    /// The size of dimension `dimension` of the tensor `name`; 1 beyond its last dimension.
    ///
    /// # Errors
    /// If the tensor is missing.
    pub fn dimension(&self, name: &str, dimension: usize) -> Result<usize> {
        let info = self.facts.tensor(name).ok_or_else(|| self.missing(name))?;
        Ok(info.shape.get(dimension).copied().unwrap_or(1) as usize)
    }

    /// The matrix `name` of `out` rows of `width`, if present.
    ///
    /// # Errors
    /// If its shape or type doesn't match.
    pub fn matrix(&self, name: &str, out: usize, width: usize) -> Result<Option<B::Matrix>> {
        self.matrix_rows(name, out, width, 0..out)
    }

    /// The matrix `name` of `out` rows of `width`.
    ///
    /// # Errors
    /// As [`Weights::matrix`], or if it is missing.
    pub fn required_matrix(&self, name: &str, out: usize, width: usize) -> Result<B::Matrix> {
        self.matrix(name, out, width)?.ok_or_else(|| self.missing(name))
    }

    /// The rows `rows` of the matrix `name` of `out` rows of `width`, if present.
    /// Rows are whole blocks, so a part of a fused matrix is a view of its bytes.
    ///
    /// # Errors
    /// If its shape or type doesn't match.
    pub fn matrix_rows(
        &self,
        name: &str,
        out: usize,
        width: usize,
        rows: Range<usize>,
    ) -> Result<Option<B::Matrix>> {
        let Some(info) = self.find(name, &[width as u64, out as u64])? else { return Ok(None) };
        let data = part(self.facts.gguf.data(info), out, &rows);
        let matrix = self.backend.matrix(data, info.kind, rows.len(), width)?;
        matrix.map(Some).ok_or_else(|| self.wrong_type(info))
    }

    /// The matrix `name` of `rows` rows of `segments * width`, reshaped to `rows * segments` rows
    /// of `width`.
    ///
    /// # Errors
    /// If it is missing, its shape or type doesn't match, or blocks of its type cross the end of a
    /// segment.
    pub fn segments(&self, name: &str, rows: usize, segments: usize, width: usize) -> Result<B::Matrix> {
        let info = self.find(name, &[(segments * width) as u64, rows as u64])?;
        let info = info.ok_or_else(|| self.missing(name))?;
        let matrix = self.backend.matrix(self.facts.gguf.data(info), info.kind, rows * segments, width)?;
        matrix.ok_or_else(|| self.wrong_type(info))
    }

    /// Joins the matrices `names` of `out` rows of `width` each, if all are present and of the same
    /// type.
    ///
    /// # Errors
    /// If a shape or the type doesn't match.
    pub fn joined(&self, names: &[String], out: usize, width: usize) -> Result<Option<B::Matrix>> {
        let shape = [width as u64, out as u64];
        let Some((data, info)) = self.interleaved(names, &shape, 1)? else { return Ok(None) };
        let matrix = self.backend.matrix(data, info.kind, names.len() * out, width)?;
        matrix.map(Some).ok_or_else(|| self.wrong_type(info))
    }

    /// Joins the stacks `names` of `count` matrices of `out` rows of `width` each into one of
    /// `count` longer matrices.
    /// `None` unless all are present and of the same type.
    ///
    /// # Errors
    /// If a shape or the type doesn't match.
    pub fn joined_stack(
        &self,
        names: &[String],
        count: usize,
        out: usize,
        width: usize,
    ) -> Result<Option<B::Stack>> {
        let shape = [width as u64, out as u64, count as u64];
        let Some((data, info)) = self.interleaved(names, &shape, count)? else { return Ok(None) };
        let out = names.len() * out;
        let shape = StackShape { count, out, width, rows: 0..out };
        self.backend.stack(data, info.kind, shape)?.map(Some).ok_or_else(|| self.wrong_type(info))
    }

    /// Joins the tables `names` of `rows` rows of `width` each into one with longer rows, if all
    /// are present and of the same type.
    ///
    /// # Errors
    /// If a shape or the type doesn't match.
    pub fn joined_table(&self, names: &[String], width: usize, rows: usize) -> Result<Option<B::Vector>> {
        let shape = [width as u64, rows as u64];
        let Some((data, info)) = self.interleaved(names, &shape, rows)? else { return Ok(None) };
        self.backend.vector(data, info.kind)?.map(Some).ok_or_else(|| self.wrong_type(info))
    }

    /// The rows `rows` of each of the `count` matrices `name` of `out` rows of `width`.
    ///
    /// # Errors
    /// If it is missing, or its shape or type doesn't match.
    pub fn stack(
        &self,
        name: &str,
        count: usize,
        out: usize,
        width: usize,
        rows: Range<usize>,
    ) -> Result<B::Stack> {
        let info = self.find(name, &[width as u64, out as u64, count as u64])?;
        let info = info.ok_or_else(|| self.missing(name))?;
        let shape = StackShape { count, out, width, rows };
        let stack = self.backend.stack(self.facts.gguf.data(info), info.kind, shape)?;
        stack.ok_or_else(|| self.wrong_type(info))
    }

    /// The vector `name` of `len` numbers, if present.
    ///
    /// # Errors
    /// If its shape or type doesn't match.
    pub fn vector(&self, name: &str, len: usize) -> Result<Option<B::Vector>> {
        self.table(name, len, 1)
    }

    /// The vector `name` of `len` numbers.
    ///
    /// # Errors
    /// As [`Weights::vector`], or if it is missing.
    pub fn required(&self, name: &str, len: usize) -> Result<B::Vector> {
        self.vector(name, len)?.ok_or_else(|| self.missing(name))
    }

    /// The numbers of `name`, `rows` rows of `width`, if present.
    ///
    /// # Errors
    /// If its shape or type doesn't match.
    pub fn table(&self, name: &str, width: usize, rows: usize) -> Result<Option<B::Vector>> {
        let Some(info) = self.find(name, &[width as u64, rows as u64])? else { return Ok(None) };
        let vector = self.backend.vector(self.facts.gguf.data(info), info.kind)?;
        vector.map(Some).ok_or_else(|| self.wrong_type(info))
    }

    /// The numbers `range` of the vector `name` of `len` numbers, if present.
    ///
    /// # Errors
    /// If its shape or type doesn't match.
    pub fn vector_part(&self, name: &str, len: usize, range: Range<usize>) -> Result<Option<B::Vector>> {
        let Some(info) = self.find(name, &[len as u64])? else { return Ok(None) };
        let vector = self.backend.vector(part(self.facts.gguf.data(info), len, &range), info.kind)?;
        vector.map(Some).ok_or_else(|| self.wrong_type(info))
    }

    /// Interleaves the tensors `names`, which have `count` equal parts: the first part of each,
    /// then the second part of each, and so on.
    /// `None` unless all are present and of the same type.
    fn interleaved(
        &self,
        names: &[String],
        shape: &[u64],
        count: usize,
    ) -> Result<Option<(TensorData, &TensorInfo)>> {
        let mut found = Vec::with_capacity(names.len());
        for name in names {
            let Some(info) = self.find(name, shape)? else { return Ok(None) };
            found.push(info);
        }
        let Some(&first) = found.first().filter(|first| found.iter().all(|info| info.kind == first.kind))
        else {
            return Ok(None);
        };
        let tensors: Vec<TensorData> = found.iter().map(|info| self.facts.gguf.data(info)).collect();
        let parts = (0..count)
            .flat_map(|at| tensors.iter().map(move |tensor| part(tensor.clone(), count, &(at..at + 1))));
        Ok(Some((TensorData::joined(&parts.collect::<Vec<_>>()), first)))
    }

    fn find(&self, name: &str, shape: &[u64]) -> Result<Option<&TensorInfo>> {
        let Some(info) = self.facts.take(name) else { return Ok(None) };
        // Trailing dimensions of 1 are insignificant.
        let found =
            info.shape.iter().rposition(|&n| n != 1).map_or(&info.shape[..0], |last| &info.shape[..=last]);
        let wanted = shape.iter().rposition(|&n| n != 1).map_or(&shape[..0], |last| &shape[..=last]);
        if found != wanted {
            return Err(Error::TensorShape {
                file: self.facts.gguf.name().into(),
                name: info.name.clone(),
                found: info.shape.clone(),
                expected: shape.to_vec(),
            });
        }
        Ok(Some(info))
    }

    fn wrong_type(&self, info: &TensorInfo) -> Error {
        Error::TensorType {
            file: self.facts.gguf.name().into(),
            name: info.name.clone(),
            kind: info.kind.name(),
            instead: info.kind.instead(),
        }
    }
}

/// The bytes of the rows `range` out of `rows` equal ones.
fn part(data: TensorData, rows: usize, range: &Range<usize>) -> TensorData {
    if range.len() == rows {
        return data;
    }
    let row = data.len() / rows;
    data.slice(row * range.start..row * range.end)
}
