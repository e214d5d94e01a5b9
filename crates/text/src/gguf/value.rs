//! Metadata values.

use std::fmt::Arguments;

use super::GgufError;
use super::cursor::Cursor;

/// A metadata value.
/// Variants are in the order of the type ids in the file, 0 to 12.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Value {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    String(String),
    Array(Array),
    U64(u64),
    I64(i64),
    F64(f64),
}

/// An array of values of one type; variants are in the order of the type ids.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Array {
    U8(Vec<u8>),
    I8(Vec<i8>),
    U16(Vec<u16>),
    I16(Vec<i16>),
    U32(Vec<u32>),
    I32(Vec<i32>),
    F32(Vec<f32>),
    Bool(Vec<bool>),
    String(Strings),
    Array(Vec<Array>),
    U64(Vec<u64>),
    I64(Vec<i64>),
    F64(Vec<f64>),
}

/// Many strings in one allocation, since a vocabulary has hundreds of thousands of short ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Strings {
    text: String,
    /// Where each string ends in `text`.
    ends: Vec<usize>,
}

impl Strings {
    /// Number of strings.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are no strings.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The string at an index.
    pub fn get(&self, index: usize) -> Option<&str> {
        let end = *self.ends.get(index)?;
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        Some(&self.text[start..end])
    }

    /// All strings in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> {
        let mut start = 0;
        self.ends.iter().map(move |&end| &self.text[std::mem::replace(&mut start, end)..end])
    }

    fn push(&mut self, text: &str) {
        self.text.push_str(text);
        self.ends.push(self.text.len());
    }
}

impl<S: AsRef<str>> FromIterator<S> for Strings {
    fn from_iter<I: IntoIterator<Item = S>>(strings: I) -> Strings {
        let mut all = Strings::default();
        for text in strings {
            all.push(text.as_ref());
        }
        all
    }
}

/// Names of the value types by id.
const NAMES: [&str; 13] =
    ["u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "string", "array", "u64", "i64", "f64"];

/// Arrays nested deeper than this are refused; real files have at most one level.
const DEEPEST: usize = 8;

impl Value {
    /// Name of the type: `u32`, `string`, `array of i32`.
    pub fn type_name(&self) -> String {
        match self {
            Value::Array(array) => format!("array of {}", NAMES[array.type_id() as usize]),
            other => NAMES[other.type_id() as usize].to_owned(),
        }
    }

    pub(super) fn type_id(&self) -> u32 {
        match self {
            Value::U8(_) => 0,
            Value::I8(_) => 1,
            Value::U16(_) => 2,
            Value::I16(_) => 3,
            Value::U32(_) => 4,
            Value::I32(_) => 5,
            Value::F32(_) => 6,
            Value::Bool(_) => 7,
            Value::String(_) => 8,
            Value::Array(_) => 9,
            Value::U64(_) => 10,
            Value::I64(_) => 11,
            Value::F64(_) => 12,
        }
    }

    /// The value as an integer of any sign, if it is one.
    pub fn integer(&self) -> Option<i128> {
        Some(match *self {
            Value::U8(v) => v.into(),
            Value::I8(v) => v.into(),
            Value::U16(v) => v.into(),
            Value::I16(v) => v.into(),
            Value::U32(v) => v.into(),
            Value::I32(v) => v.into(),
            Value::U64(v) => v.into(),
            Value::I64(v) => v.into(),
            _ => return None,
        })
    }

    /// Reads a type id and a value of that type.
    pub(super) fn read(cursor: &mut Cursor, field: Arguments<'_>) -> Result<Value, GgufError> {
        let id = read_type(cursor, field)?;
        Ok(match id {
            0 => Value::U8(cursor.array::<1>(field)?[0]),
            1 => Value::I8(i8::from_le_bytes(cursor.array(field)?)),
            2 => Value::U16(u16::from_le_bytes(cursor.array(field)?)),
            3 => Value::I16(i16::from_le_bytes(cursor.array(field)?)),
            4 => Value::U32(cursor.u32(field)?),
            5 => Value::I32(i32::from_le_bytes(cursor.array(field)?)),
            6 => Value::F32(f32::from_le_bytes(cursor.array(field)?)),
            7 => Value::Bool(read_bools(cursor, 1, field)?[0]),
            8 => Value::String(cursor.string(field)?.to_owned()),
            9 => Value::Array(Array::read(cursor, field, 1)?),
            10 => Value::U64(cursor.u64(field)?),
            11 => Value::I64(i64::from_le_bytes(cursor.array(field)?)),
            _ => Value::F64(f64::from_le_bytes(cursor.array(field)?)),
        })
    }
}

impl Array {
    /// Number of values; in an array of arrays, number of arrays.
    pub fn len(&self) -> usize {
        match self {
            Array::U8(v) => v.len(),
            Array::I8(v) => v.len(),
            Array::U16(v) => v.len(),
            Array::I16(v) => v.len(),
            Array::U32(v) => v.len(),
            Array::I32(v) => v.len(),
            Array::F32(v) => v.len(),
            Array::Bool(v) => v.len(),
            Array::String(v) => v.len(),
            Array::Array(v) => v.len(),
            Array::U64(v) => v.len(),
            Array::I64(v) => v.len(),
            Array::F64(v) => v.len(),
        }
    }

    /// Whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn type_id(&self) -> u32 {
        match self {
            Array::U8(_) => 0,
            Array::I8(_) => 1,
            Array::U16(_) => 2,
            Array::I16(_) => 3,
            Array::U32(_) => 4,
            Array::I32(_) => 5,
            Array::F32(_) => 6,
            Array::Bool(_) => 7,
            Array::String(_) => 8,
            Array::Array(_) => 9,
            Array::U64(_) => 10,
            Array::I64(_) => 11,
            Array::F64(_) => 12,
        }
    }

    fn read(cursor: &mut Cursor, field: Arguments<'_>, depth: usize) -> Result<Array, GgufError> {
        let offset = cursor.at;
        if depth > DEEPEST {
            return Err(cursor.error(offset, field, format!("arrays are nested more than {DEEPEST} deep")));
        }
        let id = read_type(cursor, field)?;
        let least = match id {
            0 | 1 | 7 => 1,
            2 | 3 => 2,
            4..=6 => 4,
            8 => cursor.least_string(),
            9 => 4 + cursor.least_string(),
            _ => 8,
        };
        let count = cursor.count(least, field)?;
        Ok(match id {
            0 => Array::U8(cursor.take(count as u64, field)?.to_vec()),
            1 => Array::I8(numbers(cursor, count, field, i8::from_le_bytes)?),
            2 => Array::U16(numbers(cursor, count, field, u16::from_le_bytes)?),
            3 => Array::I16(numbers(cursor, count, field, i16::from_le_bytes)?),
            4 => Array::U32(numbers(cursor, count, field, u32::from_le_bytes)?),
            5 => Array::I32(numbers(cursor, count, field, i32::from_le_bytes)?),
            6 => Array::F32(numbers(cursor, count, field, f32::from_le_bytes)?),
            7 => Array::Bool(read_bools(cursor, count, field)?),
            8 => {
                let mut strings = Strings { text: String::new(), ends: Vec::with_capacity(count) };
                for _ in 0..count {
                    strings.push(cursor.string(field)?);
                }
                Array::String(strings)
            }
            9 => Array::Array(
                (0..count).map(|_| Array::read(cursor, field, depth + 1)).collect::<Result<_, _>>()?,
            ),
            10 => Array::U64(numbers(cursor, count, field, u64::from_le_bytes)?),
            11 => Array::I64(numbers(cursor, count, field, i64::from_le_bytes)?),
            _ => Array::F64(numbers(cursor, count, field, f64::from_le_bytes)?),
        })
    }
}

fn read_type(cursor: &mut Cursor, field: Arguments<'_>) -> Result<u32, GgufError> {
    let offset = cursor.at;
    let id = cursor.u32(field)?;
    if id as usize >= NAMES.len() {
        return Err(cursor.error(offset, field, format!("there is no value type {id}")));
    }
    Ok(id)
}

fn read_bools(cursor: &mut Cursor, count: usize, field: Arguments<'_>) -> Result<Vec<bool>, GgufError> {
    let offset = cursor.at;
    let bytes = cursor.take(count as u64, field)?;
    match bytes.iter().position(|&b| b > 1) {
        Some(i) => Err(cursor.error(offset + i, field, format!("{} is no bool", bytes[i]))),
        None => Ok(bytes.iter().map(|&b| b == 1).collect()),
    }
}

fn numbers<T, const N: usize>(
    cursor: &mut Cursor,
    count: usize,
    field: Arguments<'_>,
    from: fn([u8; N]) -> T,
) -> Result<Vec<T>, GgufError> {
    // Can't overflow: `count` items of at least N bytes were checked against the remaining bytes.
    let (whole, _) = cursor.take((count * N) as u64, field)?.as_chunks::<N>();
    Ok(whole.iter().map(|&bytes| from(bytes)).collect())
}

macro_rules! value_from {
    ($($variant:ident($rust:ty)),*) => {
        $(impl From<$rust> for Value {
            fn from(value: $rust) -> Value {
                Value::$variant(value)
            }
        }
        impl From<Vec<$rust>> for Value {
            fn from(values: Vec<$rust>) -> Value {
                Value::Array(Array::$variant(values))
            }
        })*
    };
}
value_from!(
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    U64(u64),
    I64(i64),
    F64(f64)
);

impl From<&str> for Value {
    fn from(value: &str) -> Value {
        Value::String(value.to_owned())
    }
}

impl From<String> for Value {
    fn from(value: String) -> Value {
        Value::String(value)
    }
}

impl From<Strings> for Value {
    fn from(values: Strings) -> Value {
        Value::Array(Array::String(values))
    }
}

impl From<Array> for Value {
    fn from(value: Array) -> Value {
        Value::Array(value)
    }
}
