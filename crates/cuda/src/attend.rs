//! Attention over keys and values in blocks, and writing to these blocks.

use alara_kernels::{AttentionShape, AttentionSpan, KvFormat};

use crate::params::{Field, params};
use crate::{Array, Device, Error, Launch, Memory, Params, Result, SHARED};

/// Positions per split: with few rows, positions are divided among thread blocks at fixed offsets.
const SPLIT: usize = 256;

/// The most rows of a span whose positions are split: more rows give enough thread blocks, and too
/// many partial results.
const SPLIT_ROWS: usize = 16;

/// Warps of a block; as in `kernels/attend.cu`.
const WARPS: usize = 4;

/// No partial result; as in `kernels/attend.cu`.
const NONE: u32 = u32::MAX;

/// The name of a format of keys and values in kernels.
pub(crate) fn kv_name(format: KvFormat) -> &'static str {
    match format {
        KvFormat::F32 => "f32",
        KvFormat::F16 => "f16",
        KvFormat::Q8_0 => "q8_0",
    }
}

/// An attention over blocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttendShape {
    /// The heads and their window; values have at most 512 numbers.
    pub heads: AttentionShape,
    /// Positions in a block.
    pub block_tokens: usize,
    /// The format of cached keys and values.
    pub kind: KvFormat,
}

impl AttendShape {
    /// Queries per thread block, and pairs of a value's numbers per lane.
    /// Chooses the available kernel that leaves the fewest lanes idle.
    fn kernel(&self) -> (usize, usize) {
        let AttentionShape { heads, kv_heads, value_width, .. } = self.heads;
        let group = heads / kv_heads;
        match value_width {
            0..=256 if group == 1 => (1, if value_width <= 128 { 2 } else { 4 }),
            0..=256 => (if group <= 4 { 4 } else { 8 }, if value_width <= 128 { 2 } else { 4 }),
            _ => (if group == 1 { 1 } else { 4 }, 8),
        }
    }

    /// Bytes of shared memory: first for the queries, then for the warps' results.
    fn shared(&self) -> usize {
        let (queries, _) = self.kernel();
        let AttentionShape { key_width, value_width, .. } = self.heads;
        4 * (WARPS * queries * (value_width + 2)).max(queries * key_width.next_multiple_of(4))
    }

    fn check(&self) -> Result<()> {
        let AttentionShape { heads, kv_heads, key_width, value_width, values_in_keys, .. } = self.heads;
        let refuse = |message| Err(Error::Shape { operation: "attention", message });
        if kv_heads == 0 || heads == 0 || !heads.is_multiple_of(kv_heads) {
            return refuse(format!("{heads} heads over {kv_heads} of keys"));
        }
        if value_width == 0 || value_width > 512 || self.shared() > SHARED as usize {
            return refuse(format!("keys of {key_width} and values of {value_width}"));
        }
        if values_in_keys && (kv_heads != 1 || value_width > key_width) {
            return refuse("values within keys are of one head".into());
        }
        Ok(())
    }
}

/// How the rows of a step are divided, for layers of one shape.
/// Computed once per step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttendPlan {
    /// `AttendUnit`s of `kernels/attend.cu`.
    units: Vec<[u32; 8]>,
    /// `AttendJoin`s of `kernels/attend.cu`.
    joins: Vec<[u32; 4]>,
    /// The concatenated block tables.
    tables: Vec<u32>,
    /// The slot of every row.
    slots: Vec<u32>,
    /// Number of partial results.
    partials: usize,
    /// Thread blocks per unit and key head.
    tiles: usize,
}

impl AttendPlan {
    /// # Errors
    /// If there is no kernel for the shape, or a span's block table is too short.
    pub fn new(shape: &AttendShape, spans: &[AttentionSpan]) -> Result<Self> {
        shape.check()?;
        let (queries, _) = shape.kernel();
        let group = shape.heads.heads / shape.heads.kv_heads;
        let most = (queries / group).max(1);
        let mut plan = AttendPlan { tiles: (most * group).div_ceil(queries), ..AttendPlan::default() };
        for span in spans {
            if span.blocks.len() * shape.block_tokens < span.past + span.rows {
                let message = format!("{} blocks for {} positions", span.blocks.len(), span.past + span.rows);
                return Err(Error::Shape { operation: "attention", message });
            }
            for row in (0..span.rows).step_by(most) {
                plan.add_unit(shape, span, row, most.min(span.rows - row));
            }
            let slot = |at: usize| {
                span.blocks[at / shape.block_tokens] * shape.block_tokens as u32
                    + (at % shape.block_tokens) as u32
            };
            plan.slots.extend((span.past..span.past + span.rows).map(slot));
            plan.tables.extend_from_slice(span.blocks);
        }
        Ok(plan)
    }

    /// Adds rows `row..row + rows` of `span`, of which the first is the next row without a slot.
    fn add_unit(&mut self, shape: &AttendShape, span: &AttentionSpan, row: usize, rows: usize) {
        let position = span.past + row;
        let first = shape.heads.oldest(position);
        let end = position + rows;
        let of_step = self.slots.len() + row;
        let table = self.tables.len() as u32;
        let split = span.rows <= SPLIT_ROWS && first / SPLIT != (end - 1) / SPLIT;
        let unit = |first: usize, end: usize, partial: u32| {
            [of_step as u32, rows as u32, position as u32, table, first as u32, end as u32, partial, 0]
        };
        if !split {
            self.units.push(unit(first, end, NONE));
            return;
        }
        let splits = first / SPLIT..(end - 1) / SPLIT + 1;
        let count = splits.len();
        let before = self.partials;
        for split in splits {
            let part = (split * SPLIT).max(first)..((split + 1) * SPLIT).min(end);
            self.units.push(unit(part.start, part.end, self.partials as u32));
            self.partials += rows;
        }
        let join = |row: usize| [(of_step + row) as u32, (before + row) as u32, count as u32, rows as u32];
        self.joins.extend((0..rows).map(join));
    }

    /// Number of rows of the step.
    pub fn rows(&self) -> usize {
        self.slots.len()
    }

    /// Copies the plan to a device, with memory for partial results.
    ///
    /// # Errors
    /// If there isn't enough memory.
    pub fn upload<D: Device>(&self, device: &D, shape: &AttendShape) -> Result<Tables<D::Memory>> {
        let AttendPlan { units, joins, tables, slots, .. } = self;
        let numbers = [units.as_flattened(), joins.as_flattened(), tables, slots].concat();
        let partials = self.partials * shape.heads.heads * (shape.heads.value_width + 2);
        Ok(Tables {
            numbers: device.upload(&numbers)?,
            lens: [units.len(), joins.len(), tables.len(), slots.len()],
            partials: device.alloc(4 * partials.max(1))?,
            partials_len: partials,
            tiles: self.tiles,
        })
    }
}

/// A plan on a device.
#[derive(Debug)]
pub struct Tables<M> {
    numbers: M,
    /// Numbers of units, joins, block table entries, and slots.
    lens: [usize; 4],
    partials: M,
    partials_len: usize,
    tiles: usize,
}

impl<M: Memory> Tables<M> {
    /// Units, joins, block tables, slots.
    fn arrays(&self) -> [Array; 4] {
        let mut address = self.numbers.address();
        let sizes = [32, 16, 4, 4];
        std::array::from_fn(|at| {
            let array = Array { address, len: self.lens[at] as u64 };
            address += (self.lens[at] * sizes[at]) as u64;
            array
        })
    }

    /// The slots of the step's rows.
    pub(crate) fn slots(&self) -> Array {
        self.arrays()[3]
    }

    fn partials(&self) -> Array {
        Array { address: self.partials.address(), len: self.partials_len as u64 }
    }
}

/// Keys or values in slots.
#[derive(Clone, Copy, Debug, Default)]
pub struct KvArrays {
    /// The bytes of the numbers: `[slots, heads * width]`.
    pub quants: Array,
    /// f16 scales, one per 32 numbers; empty for formats without scales.
    pub scales: Array,
}

impl Field for KvArrays {
    fn put(&self, params: &mut Params) {
        self.quants.put(params);
        self.scales.put(params);
    }
}

/// Writes `x: [rows, row]` to the slots of the step's rows.
///
/// # Errors
/// If `x` has another length, or the device fails.
pub fn append<D: Device>(
    device: &D,
    kind: KvFormat,
    tables: &Tables<D::Memory>,
    x: Array,
    row: usize,
    rows: KvArrays,
) -> Result<()> {
    let slots = tables.slots();
    if x.len != slots.len * row as u64 {
        let message = format!("{} numbers for {} rows of {row}", x.len, slots.len);
        return Err(Error::Shape { operation: "attention", message });
    }
    device.launch(&Launch {
        kernel: format!("alara_append_{}", kv_name(kind)),
        grid: [slots.len as u32, 1, 1],
        threads: (row.next_multiple_of(32) as u32).min(256),
        shared: 0,
        params: params![x, slots, rows, row as u32, 0u32],
    })
}

/// `y[t, h] = Σ softmax(scale q[t, h] · keys) values` over the positions that row t attends to,
/// including its own.
/// `q: [T, H * key_width]`, `y: [T, H * value_width]`; `sinks: [H]`, extra scores whose share is
/// discarded, or empty.
/// `values` equals `keys` if values are part of the keys.
///
/// # Errors
/// If lengths don't match the step, or the device fails.
pub fn attend<D: Device>(
    device: &D,
    shape: &AttendShape,
    tables: &Tables<D::Memory>,
    q: Array,
    sinks: Array,
    [keys, values]: [KvArrays; 2],
    y: Array,
) -> Result<()> {
    let AttentionShape { heads, kv_heads, key_width, value_width, values_in_keys, scale, window, .. } =
        shape.heads;
    let [units, joins, blocks, _] = tables.arrays();
    let (queries, pairs) = shape.kernel();
    let (key_row, value_row) = shape.heads.cached();
    let value_row = if values_in_keys { key_row } else { value_row };
    let rows = tables.slots().len as usize;
    let fits = q.len as usize == rows * heads * key_width && y.len as usize == rows * heads * value_width;
    if !fits || !(sinks.len == 0 || sinks.len as usize == heads) {
        let message = format!("{} of queries and {} sinks into {}, in {rows} rows", q.len, sinks.len, y.len);
        return Err(Error::Shape { operation: "attention", message });
    }
    let (heads, value_width) = (heads as u32, value_width as u32);
    device.launch(&Launch {
        kernel: format!("alara_attend_{}_{queries}x{pairs}", kv_name(shape.kind)),
        grid: [units.len as u32, kv_heads as u32, tables.tiles as u32],
        threads: 32 * WARPS as u32,
        shared: shape.shared() as u32,
        params: params![
            q,
            sinks,
            keys,
            values,
            units,
            blocks,
            y,
            tables.partials(),
            heads,
            kv_heads as u32,
            key_width as u32,
            value_width,
            key_row as u32,
            value_row as u32,
            shape.block_tokens as u32,
            window.map_or(0, |window| window.min(u32::MAX as usize)) as u32,
            scale,
            shape.heads.softcap.unwrap_or(0.0),
            u32::from(shape.heads.chunked && window.is_some()),
            0u32,
        ],
    })?;
    if joins.len == 0 {
        return Ok(());
    }
    device.launch(&Launch {
        kernel: "alara_attend_join".into(),
        grid: [joins.len as u32, heads, 1],
        threads: 128,
        shared: 0,
        params: params![sinks, joins, tables.partials(), y, heads, value_width],
    })
}
