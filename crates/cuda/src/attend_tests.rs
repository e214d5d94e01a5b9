//! Attention on the twin against the CPU's kernels.

use alara_kernels::{AttentionShape, AttentionSpan, Cpu, Isa, KvFormat, KvRows, Threads};
use proptest::prelude::*;

use crate::testing::{TWINS, assert_close, floats, noise, to_floats};
use crate::twin::{Host, Twin};
use crate::{Array, AttendPlan, AttendShape, AttendSpan, Device, Kept, Kind, append, attend};

/// Sequences' blocks, in no order and with others' between.
fn block_tables(spans: &[(usize, usize)], size: usize) -> (Vec<Vec<u32>>, usize) {
    let counts: Vec<usize> = spans.iter().map(|(past, rows)| (past + rows).div_ceil(size)).collect();
    let total = counts.iter().sum::<usize>() + 2;
    let step = (1..total).rev().find(|step| (1..=*step).all(|d| d == 1 || step % d != 0 || total % d != 0));
    let mut next = (0..total).map(|i| (i * step.unwrap_or(1) + 1) % total);
    let tables = counts.iter().map(|&n| next.by_ref().take(n).map(|block| block as u32).collect()).collect();
    (tables, total)
}

/// Keys or values on the twin and on the CPU.
struct Both {
    codes: Host,
    scales: Host,
    cpu: KvRows,
}

impl Both {
    fn new(slots: usize, row: usize, kind: Kind) -> Self {
        let (format, bytes, scales) = match kind {
            Kind::F32 => (KvFormat::F32, 4 * row, 0),
            Kind::F16 => (KvFormat::F16, 2 * row, 0),
            Kind::Q8_0 => (KvFormat::Q8_0, row, row / 16),
        };
        Both {
            codes: Host::of(&vec![0xff; slots * bytes]),
            scales: Host::of(&vec![0xff; slots * scales]),
            cpu: KvRows::zeros(slots, row, format).unwrap(),
        }
    }

    fn kept(&self) -> Kept {
        Kept { codes: self.codes.array(1), scales: self.scales.array(2) }
    }
}

/// Past and rows of sequences; fills the past in one step and holds the next step against the CPU's.
#[track_caller]
fn check(shape: &AttendShape, spans: &[(usize, usize)], sinks: bool) {
    let cpu = Cpu::new(Isa::available().next().unwrap(), Threads::new(1));
    let size = shape.block_tokens;
    let (tables, blocks) = block_tables(spans, size);
    let key_row = shape.kv_heads * shape.key_width;
    let value_row = shape.kv_heads * shape.value_width;
    for (nth, twin) in TWINS.iter().enumerate() {
        let mut keys = Both::new(blocks * size, key_row, shape.kind);
        let mut values = (!shape.values_in_keys).then(|| Both::new(blocks * size, value_row, shape.kind));
        let mut write = |past: bool, seed: u64| {
            let spans = spans.iter().map(|&(before, rows)| if past { (0, before) } else { (before, rows) });
            let spans: Vec<AttendSpan> = (spans.zip(&tables))
                .filter(|((_, rows), _)| *rows > 0)
                .map(|((past, rows), blocks)| AttendSpan { rows, past, blocks })
                .collect();
            let plan = AttendPlan::new(shape, &spans).unwrap();
            let uploaded = plan.upload(twin, shape).unwrap();
            for (at, (both, row)) in std::iter::once((&mut keys, key_row))
                .chain(values.as_mut().map(|v| (v, value_row)))
                .enumerate()
            {
                let x = noise(seed + at as u64, plan.rows() * row);
                if !spans.is_empty() {
                    append(twin, shape.kind, &uploaded, floats(&x).array(4), row, both.kept()).unwrap();
                }
                let mut from = 0;
                for span in &spans {
                    for i in 0..span.rows {
                        let at = span.past + i;
                        let slot = span.blocks[at / size] as usize * size + at % size;
                        both.cpu.write(&cpu, slot, &x[(from + i) * row..(from + i + 1) * row]);
                    }
                    from += span.rows;
                }
            }
            uploaded
        };
        write(true, 1);
        let uploaded = write(false, 5);

        let rows: usize = spans.iter().map(|(_, rows)| rows).sum();
        let q: Vec<f32> = noise(11, rows * shape.heads * shape.key_width).iter().map(|x| 4.0 * x).collect();
        let sinks = sinks.then(|| noise(12, shape.heads));
        let mut wanted = vec![0.0; rows * shape.heads * shape.value_width];
        let cpu_spans: Vec<AttentionSpan> = spans
            .iter()
            .zip(&tables)
            .map(|(&(past, rows), blocks)| AttentionSpan { rows, past, blocks })
            .collect();
        let cpu_shape = AttentionShape {
            heads: shape.heads,
            kv_heads: shape.kv_heads,
            key_width: shape.key_width,
            value_width: shape.value_width,
            scale: shape.scale,
            window: shape.window,
        };
        let values_cpu = values.as_ref().map(|values| &values.cpu);
        alara_kernels::attend(
            &cpu,
            &cpu_shape,
            &keys.cpu,
            values_cpu,
            size,
            &cpu_spans,
            sinks.as_deref(),
            &q,
            &mut wanted,
        );

        let y = twin.room(4 * wanted.len()).unwrap();
        let sinks = sinks.map(|sinks| floats(&sinks));
        let sinks = sinks.as_ref().map_or(Array::default(), |sinks| sinks.array(4));
        let values = values.as_ref().map_or(keys.kept(), Both::kept);
        let q = floats(&q);
        attend(twin, shape, &uploaded, q.array(4), sinks, [keys.kept(), values], y.array(4)).unwrap();
        assert_close(&to_floats(&y), &wanted, 2e-5, &format!("{shape:?} {spans:?} order {nth}"));
    }
}

const SHAPE: AttendShape = AttendShape {
    heads: 4,
    kv_heads: 2,
    key_width: 64,
    value_width: 64,
    values_in_keys: false,
    scale: 0.125,
    window: None,
    block_tokens: 16,
    kind: Kind::F32,
};

#[test]
fn every_kind_and_both_forms() {
    for kind in [Kind::F32, Kind::F16, Kind::Q8_0] {
        let shape = AttendShape { kind, ..SHAPE };
        check(&shape, &[(0, 5)], false);
        check(&shape, &[(37, 1), (0, 3), (20, 19)], true);
        // Beyond one and two splits.
        check(&shape, &[(300, 1), (520, 3)], true);
    }
}

#[test]
fn every_kernel() {
    for (heads, kv_heads) in [(2, 2), (6, 2), (8, 1), (20, 1)] {
        for (key_width, value_width) in [(96, 96), (192, 128), (256, 256), (40, 300)] {
            let shape = AttendShape { heads, kv_heads, key_width, value_width, ..SHAPE };
            check(&shape, &[(3, 2), (270, 1)], heads == 6);
        }
    }
}

#[test]
fn values_within_keys() {
    let mla =
        AttendShape { heads: 20, kv_heads: 1, key_width: 96, value_width: 64, values_in_keys: true, ..SHAPE };
    for kind in [Kind::F32, Kind::F16, Kind::Q8_0] {
        check(&AttendShape { kind, ..mla }, &[(258, 1), (0, 4)], false);
    }
}

#[test]
fn windows_see_no_farther() {
    for window in [1, 3, 16, 100] {
        let shape = AttendShape { window: Some(window), kind: Kind::F16, ..SHAPE };
        check(&shape, &[(0, 20), (33, 1), (300, 2)], true);
    }
}

#[test]
fn shapes_without_a_kernel_are_refused() {
    let refused = |shape: AttendShape| AttendPlan::new(&shape, &[]).unwrap_err().to_string();
    assert_eq!(refused(AttendShape { heads: 3, ..SHAPE }), "attention: 3 heads over 2 of keys");
    assert_eq!(refused(AttendShape { value_width: 513, ..SHAPE }), "attention: keys of 64 and values of 513");
    let short = AttendSpan { rows: 2, past: 15, blocks: &[0] };
    let error = AttendPlan::new(&SHAPE, &[short]).unwrap_err().to_string();
    assert_eq!(error, "attention: 1 blocks for 17 positions");
}

/// What the twin is for: it sees what a GPU would not tell.
#[test]
fn an_index_beyond_its_array_is_told() {
    let twin = Twin::default();
    let plan = AttendPlan::new(&SHAPE, &[AttendSpan { rows: 1, past: 0, blocks: &[0] }]).unwrap();
    let tables = plan.upload(&twin, &SHAPE).unwrap();
    let (x, kept) = (floats(&[0.0; 128]), Host::of(&[0; 100]));
    let rows = Kept { codes: kept.array(1), scales: Array::default() };
    let error = append(&twin, Kind::F32, &tables, x.array(4), 128, rows).unwrap_err().to_string();
    assert!(error.contains("kv.cuh") && error.contains("rows.codes.len"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn any_shape(
        kv_heads in 1usize..4,
        group in 1usize..10,
        key_width in 1usize..80,
        value_width in 1usize..80,
        block_tokens in 1usize..20,
        window in proptest::option::of(1usize..60),
        half in any::<bool>(),
        sinks in any::<bool>(),
        spans in proptest::collection::vec((0usize..60, 1usize..9), 1..4),
    ) {
        let kind = if half { Kind::F16 } else { Kind::F32 };
        let shape = AttendShape {
            heads: kv_heads * group, kv_heads, key_width, value_width, block_tokens, window, kind, ..SHAPE
        };
        check(&shape, &spans, sinks);
    }
}
