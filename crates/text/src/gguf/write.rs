//! Writes GGUF files, for tests and for packing the model that ships.

use std::io::{self, Write};

use super::parse::DEFAULT_ALIGNMENT;
use super::{Array, Gguf, TensorType, Value};

/// Collects a file and writes it.
/// Reading and rewriting a file reproduces it byte for byte if the original has the usual layout:
/// tensors in the order of the table, padded with zeros.
///
/// ```
/// use alara_text::gguf::{Gguf, TensorType, Writer};
/// let bytes = Writer::new()
///     .meta("general.architecture", "qwen3")
///     .tensor("output_norm.weight", &[2], TensorType::F32, [1f32, 2.0].map(f32::to_le_bytes).concat())
///     .bytes()
///     .unwrap();
/// assert_eq!(Gguf::from_vec("example", bytes).unwrap().tensors().len(), 1);
/// ```
pub struct Writer {
    version: u32,
    metadata: Vec<(String, Value)>,
    tensors: Vec<Tensor>,
}

struct Tensor {
    name: String,
    shape: Vec<u64>,
    kind: TensorType,
    data: Vec<u8>,
}

impl Default for Writer {
    fn default() -> Writer {
        Writer::new()
    }
}

impl Writer {
    /// An empty file of version 3.
    pub fn new() -> Writer {
        Writer { version: 3, metadata: Vec::new(), tensors: Vec::new() }
    }

    /// The keys, values and tensors of a file that was read.
    pub fn copy_of(gguf: &Gguf) -> Writer {
        let mut writer = Writer::new();
        for (key, value) in gguf.metadata().iter() {
            writer = writer.meta(key, value.clone());
        }
        for info in gguf.tensors() {
            writer = writer.tensor(&info.name, &info.shape, info.kind, gguf.data(info).to_vec());
        }
        writer
    }

    /// As [`Writer::copy_of`], with the keys' prefix changed to another architecture.
    pub fn copy_as(gguf: &Gguf, architecture: &str) -> Writer {
        let mut writer = Writer::copy_of(gguf);
        let own = gguf.metadata().iter().find(|(key, _)| *key == "general.architecture");
        let Some((_, Value::String(own))) = own else { return writer };
        for (key, _) in &mut writer.metadata {
            if let Some(name) = key.strip_prefix(own.as_str()).and_then(|rest| rest.strip_prefix('.')) {
                *key = format!("{architecture}.{name}");
            }
        }
        writer.meta("general.architecture", architecture)
    }

    /// Sets a version other than 3; version 1 has 32-bit counts.
    pub fn version(mut self, version: u32) -> Writer {
        self.version = version;
        self
    }

    /// Adds a key, or replaces its value in place.
    /// `general.alignment` determines the layout of the file.
    pub fn meta(mut self, key: &str, value: impl Into<Value>) -> Writer {
        let value = value.into();
        match self.metadata.iter_mut().find(|(k, _)| k == key) {
            Some(entry) => entry.1 = value,
            None => self.metadata.push((key.to_owned(), value)),
        }
        self
    }

    /// Adds a tensor; `shape` is in GGUF's order, row length first.
    pub fn tensor(mut self, name: &str, shape: &[u64], kind: TensorType, data: impl Into<Vec<u8>>) -> Writer {
        self.tensors.push(Tensor { name: name.to_owned(), shape: shape.to_vec(), kind, data: data.into() });
        self
    }

    /// The file as bytes; errors as in [`write`](Self::write).
    pub fn bytes(&self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.write(&mut bytes)?;
        Ok(bytes)
    }

    /// Writes the file.
    /// [`io::ErrorKind::InvalidInput`] if the size of a tensor's data doesn't match its shape and
    /// type, or the alignment is no power of two.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let alignment = self.alignment()?;
        let mut head = Vec::new();
        head.extend(b"GGUF");
        head.extend(self.version.to_le_bytes());
        self.size(&mut head, self.tensors.len() as u64)?;
        self.size(&mut head, self.metadata.len() as u64)?;
        for (key, value) in &self.metadata {
            self.string(&mut head, key)?;
            self.value(&mut head, value)?;
        }
        let mut offset = 0u64;
        for tensor in &self.tensors {
            tensor.check()?;
            self.string(&mut head, &tensor.name)?;
            head.extend((tensor.shape.len() as u32).to_le_bytes());
            for &dimension in &tensor.shape {
                self.size(&mut head, dimension)?;
            }
            head.extend(tensor.kind.0.to_le_bytes());
            head.extend(offset.to_le_bytes());
            offset = (offset + tensor.data.len() as u64).next_multiple_of(alignment);
        }
        out.write_all(&head)?;
        pad(out, head.len(), alignment)?;
        for tensor in &self.tensors {
            out.write_all(&tensor.data)?;
            pad(out, tensor.data.len(), alignment)?;
        }
        Ok(())
    }

    fn alignment(&self) -> io::Result<u64> {
        let value = self.metadata.iter().find(|(key, _)| key == "general.alignment");
        let Some((_, value)) = value else { return Ok(DEFAULT_ALIGNMENT) };
        let alignment = value.integer().and_then(|v| u64::try_from(v).ok());
        alignment
            .filter(|a| a.is_power_of_two())
            .ok_or_else(|| invalid("general.alignment is no power of two".into()))
    }

    /// A length, count or dimension: 32 bits in version 1, 64 later.
    fn size(&self, out: &mut Vec<u8>, size: u64) -> io::Result<()> {
        if self.version > 1 {
            out.extend(size.to_le_bytes());
            return Ok(());
        }
        let narrow =
            u32::try_from(size).map_err(|_| invalid(format!("version 1 can't state the size {size}")))?;
        out.extend(narrow.to_le_bytes());
        Ok(())
    }

    fn string(&self, out: &mut Vec<u8>, text: &str) -> io::Result<()> {
        self.size(out, text.len() as u64)?;
        out.extend(text.as_bytes());
        Ok(())
    }

    fn value(&self, out: &mut Vec<u8>, value: &Value) -> io::Result<()> {
        out.extend(value.type_id().to_le_bytes());
        match value {
            Value::U8(v) => out.extend(v.to_le_bytes()),
            Value::I8(v) => out.extend(v.to_le_bytes()),
            Value::U16(v) => out.extend(v.to_le_bytes()),
            Value::I16(v) => out.extend(v.to_le_bytes()),
            Value::U32(v) => out.extend(v.to_le_bytes()),
            Value::I32(v) => out.extend(v.to_le_bytes()),
            Value::F32(v) => out.extend(v.to_le_bytes()),
            Value::Bool(v) => out.push(u8::from(*v)),
            Value::String(v) => self.string(out, v)?,
            Value::Array(v) => self.array(out, v)?,
            Value::U64(v) => out.extend(v.to_le_bytes()),
            Value::I64(v) => out.extend(v.to_le_bytes()),
            Value::F64(v) => out.extend(v.to_le_bytes()),
        }
        Ok(())
    }

    fn array(&self, out: &mut Vec<u8>, array: &Array) -> io::Result<()> {
        out.extend(array.type_id().to_le_bytes());
        self.size(out, array.len() as u64)?;
        match array {
            Array::U8(v) => out.extend(v),
            Array::I8(v) => out.extend(v.iter().flat_map(|v| v.to_le_bytes())),
            Array::U16(v) => out.extend(v.iter().flat_map(|v| v.to_le_bytes())),
            Array::I16(v) => out.extend(v.iter().flat_map(|v| v.to_le_bytes())),
            Array::U32(v) => out.extend(v.iter().flat_map(|v| v.to_le_bytes())),
            Array::I32(v) => out.extend(v.iter().flat_map(|v| v.to_le_bytes())),
            Array::F32(v) => out.extend(v.iter().flat_map(|v| v.to_le_bytes())),
            Array::Bool(v) => out.extend(v.iter().map(|&v| u8::from(v))),
            Array::String(v) => v.iter().try_for_each(|text| self.string(out, text))?,
            Array::Array(v) => v.iter().try_for_each(|array| self.array(out, array))?,
            Array::U64(v) => out.extend(v.iter().flat_map(|v| v.to_le_bytes())),
            Array::I64(v) => out.extend(v.iter().flat_map(|v| v.to_le_bytes())),
            Array::F64(v) => out.extend(v.iter().flat_map(|v| v.to_le_bytes())),
        }
        Ok(())
    }
}

impl Tensor {
    fn check(&self) -> io::Result<()> {
        let Tensor { name, shape, kind, data } = self;
        let Some((values, bytes)) = kind.block() else { return Ok(()) };
        let need = shape.iter().product::<u64>() / values * bytes;
        if need == data.len() as u64 {
            return Ok(());
        }
        Err(invalid(format!("tensor {name} is {} bytes, {shape:?} of {kind} are {need}", data.len())))
    }
}

fn pad(out: &mut impl Write, written: usize, alignment: u64) -> io::Result<()> {
    let missing = (written as u64).next_multiple_of(alignment) - written as u64;
    io::copy(&mut io::Read::take(io::repeat(0), missing), out).map(drop)
}

fn invalid(problem: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, problem)
}
