//! Weights used in place as bytes of the file.

use alara_kernels::{Format, WeightMatrix};
use alara_text::gguf::{TensorData, TensorType};

use crate::backend::{StackShape, format};

/// A weight matrix `[out, width]`.
#[derive(Clone, Debug)]
pub struct Matrix {
    data: TensorData,
    format: Format,
    out: usize,
    width: usize,
}

/// Weight matrices of equal shape, of each of which a range of rows is used.
#[derive(Clone, Debug)]
pub struct Stack {
    data: TensorData,
    format: Format,
    shape: StackShape,
    /// Bytes of a row.
    row: usize,
}

impl Matrix {
    /// `None` if there are no kernels for `kind`, or if its blocks don't divide rows of `width`.
    pub fn new(data: TensorData, kind: TensorType, out: usize, width: usize) -> Option<Self> {
        let format = format(kind)?;
        let row = format.row_bytes(width)?;
        (data.len() == row * out).then_some(Matrix { data, format, out, width })
    }

    /// Number of rows.
    pub fn out(&self) -> usize {
        self.out
    }

    /// Numbers in a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// The rows in the kernels' type.
    pub fn rows(&self) -> WeightMatrix<'_> {
        WeightMatrix { format: self.format, bytes: &self.data, width: self.width }
    }

    /// The numbers of row `at`.
    pub fn read(&self, at: usize, numbers: &mut [f32]) {
        let row = self.data.len() / self.out;
        alara_kernels::dequantize(self.format, &self.data[at * row..(at + 1) * row], numbers);
    }
}

impl Stack {
    /// As [`Matrix::new`].
    pub fn new(data: TensorData, kind: TensorType, shape: StackShape) -> Option<Self> {
        let format = format(kind)?;
        let row = format.row_bytes(shape.width)?;
        (data.len() == row * shape.out * shape.count).then_some(Stack { data, format, shape, row })
    }

    /// How many matrices.
    pub fn count(&self) -> usize {
        self.shape.count
    }

    /// Number of used rows of each matrix.
    pub fn out(&self) -> usize {
        self.shape.rows.len()
    }

    /// Numbers in a row.
    pub fn width(&self) -> usize {
        self.shape.width
    }

    /// The storage format of the numbers.
    pub fn format(&self) -> Format {
        self.format
    }

    /// The rows of matrix number `at`.
    pub fn rows(&self, at: usize) -> WeightMatrix<'_> {
        let start = at * self.shape.out + self.shape.rows.start;
        let range = start * self.row..(start + self.out()) * self.row;
        WeightMatrix { format: self.format, bytes: &self.data[range], width: self.shape.width }
    }
}
