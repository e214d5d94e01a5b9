//! Compares attention with the CPU's kernels.

use alara_kernels::{AttentionShape, AttentionSpan, Cpu, Isa, KvFormat, KvRows, ThreadPool};
use proptest::prelude::*;

use crate::testing::{assert_close, device, devices, floats, noise, to_floats};
use crate::twin::{Host, Twin};
use crate::{Array, AttendPlan, AttendShape, Device, KvArrays, append, attend};

/// Blocks of sequences, in arbitrary order and interleaved with unused ones.
fn block_tables(spans: &[(usize, usize)], size: usize) -> (Vec<Vec<u32>>, usize) {
    let counts: Vec<usize> = spans.iter().map(|(past, rows)| (past + rows).div_ceil(size)).collect();
    let total = counts.iter().sum::<usize>() + 2;
    let step = (1..total).rev().find(|step| (1..=*step).all(|d| d == 1 || step % d != 0 || total % d != 0));
    let mut next = (0..total).map(|i| (i * step.unwrap_or(1) + 1) % total);
    let tables = counts.iter().map(|&n| next.by_ref().take(n).map(|block| block as u32).collect()).collect();
    (tables, total)
}

/// Keys or values on the device and on the CPU.
struct Both {
    quants: Host,
    scales: Host,
    cpu: KvRows,
}

impl Both {
    fn new(slots: usize, row: usize, kind: KvFormat) -> Self {
        let (bytes, scales) = match kind {
            KvFormat::F32 => (4 * row, 0),
            KvFormat::F16 => (2 * row, 0),
            KvFormat::Q8_0 => (row, row / 16),
        };
        Both {
            quants: Host::of(&vec![0xff; slots * bytes]),
            scales: Host::of(&vec![0xff; slots * scales]),
            cpu: KvRows::zeros(slots, row, kind).unwrap(),
        }
    }

    fn arrays(&self) -> KvArrays {
        KvArrays { quants: self.quants.array(1), scales: self.scales.array(2) }
    }
}

/// Takes past and rows of sequences; fills the past in one step and compares the next step with the
/// CPU's.
#[track_caller]
fn check(shape: &AttendShape, spans: &[(usize, usize)], sinks: bool) {
    let cpu = Cpu::new(Isa::available().next().unwrap(), ThreadPool::new(1));
    let size = shape.block_tokens;
    let (tables, blocks) = block_tables(spans, size);
    let (key_row, value_row) = shape.heads.cached();
    let AttentionShape { heads, key_width, value_width, values_in_keys, .. } = shape.heads;
    for (nth, on) in devices().iter().enumerate() {
        let mut keys = Both::new(blocks * size, key_row, shape.kind);
        let mut values = (!values_in_keys).then(|| Both::new(blocks * size, value_row, shape.kind));
        let mut write = |past: bool, seed: u64| {
            let spans = spans.iter().map(|&(before, rows)| if past { (0, before) } else { (before, rows) });
            let spans: Vec<AttentionSpan> = (spans.zip(&tables))
                .filter(|((_, rows), _)| *rows > 0)
                .map(|((past, rows), blocks)| AttentionSpan { rows, past, blocks })
                .collect();
            let plan = AttendPlan::new(shape, &spans).unwrap();
            let uploaded = plan.upload(on, shape).unwrap();
            for (at, (both, row)) in std::iter::once((&mut keys, key_row))
                .chain(values.as_mut().map(|v| (v, value_row)))
                .enumerate()
            {
                let x = noise(seed + at as u64, plan.rows() * row);
                if !spans.is_empty() {
                    append(on, shape.kind, &uploaded, floats(&x).array(4), row, both.arrays()).unwrap();
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
        let q: Vec<f32> = noise(11, rows * heads * key_width).iter().map(|x| 4.0 * x).collect();
        let sinks = sinks.then(|| noise(12, heads));
        let mut wanted = vec![0.0; rows * heads * value_width];
        let cpu_spans: Vec<AttentionSpan> = spans
            .iter()
            .zip(&tables)
            .map(|(&(past, rows), blocks)| AttentionSpan { rows, past, blocks })
            .collect();
        let values_cpu = values.as_ref().map(|values| &values.cpu);
        alara_kernels::attend(
            &cpu,
            &shape.heads,
            &keys.cpu,
            values_cpu,
            size,
            &cpu_spans,
            sinks.as_deref(),
            &q,
            &mut wanted,
        );

        let y = on.alloc(4 * wanted.len()).unwrap();
        let sinks = sinks.map(|sinks| floats(&sinks));
        let sinks = sinks.as_ref().map_or(Array::default(), |sinks| sinks.array(4));
        let values = values.as_ref().map_or(keys.arrays(), Both::arrays);
        let q = floats(&q);
        attend(on, shape, &uploaded, q.array(4), sinks, [keys.arrays(), values], y.array(4)).unwrap();
        assert_close(&to_floats(&y), &wanted, 2e-5, &format!("{shape:?} {spans:?} order {nth}"));
    }
}

const HEADS: AttentionShape = AttentionShape {
    heads: 4,
    kv_heads: 2,
    key_width: 64,
    value_width: 64,
    values_in_keys: false,
    scale: 0.125,
    softcap: None,
    window: None,
    chunked: false,
};

const SHAPE: AttendShape = AttendShape { heads: HEADS, block_tokens: 16, kind: KvFormat::F32 };

#[test]
fn every_kind_and_both_forms() {
    for kind in [KvFormat::F32, KvFormat::F16, KvFormat::Q8_0] {
        let shape = AttendShape { kind, ..SHAPE };
        check(&shape, &[(0, 5)], false);
        check(&shape, &[(37, 1), (0, 3), (20, 19)], true);
        // More than one and more than two splits.
        check(&shape, &[(300, 1), (520, 3)], true);
    }
}

#[test]
fn every_kernel() {
    for (heads, kv_heads) in [(2, 2), (6, 2), (8, 1), (20, 1)] {
        for (key_width, value_width) in [(96, 96), (192, 128), (256, 256), (40, 300)] {
            let heads_of = AttentionShape { heads, kv_heads, key_width, value_width, ..HEADS };
            let shape = AttendShape { heads: heads_of, ..SHAPE };
            check(&shape, &[(3, 2), (270, 1)], heads == 6);
        }
    }
}

#[test]
fn values_within_keys() {
    let heads = AttentionShape { heads: 20, kv_heads: 1, key_width: 96, values_in_keys: true, ..HEADS };
    let mla = AttendShape { heads, ..SHAPE };
    for kind in [KvFormat::F32, KvFormat::F16, KvFormat::Q8_0] {
        check(&AttendShape { kind, ..mla }, &[(258, 1), (0, 4)], false);
    }
}

#[test]
fn windows_see_no_farther() {
    // The largest windows have no effect.
    for window in [1, 3, 16, 100, u32::MAX as usize, usize::MAX] {
        let heads = AttentionShape { window: Some(window), ..HEADS };
        let shape = AttendShape { heads, kind: KvFormat::F16, ..SHAPE };
        check(&shape, &[(0, 20), (33, 1), (300, 2)], true);
    }
}

#[test]
fn chunks_and_capped_scores() {
    for window in [1, 16, 100] {
        let heads = AttentionShape { window: Some(window), chunked: true, softcap: Some(2.0), ..HEADS };
        let shape = AttendShape { heads, kind: KvFormat::F16, ..SHAPE };
        check(&shape, &[(0, 20), (33, 1), (300, 2)], window == 16);
    }
    let heads = AttentionShape { softcap: Some(50.0), ..HEADS };
    check(&AttendShape { heads, ..SHAPE }, &[(37, 1), (0, 3)], false);
}

#[test]
fn shapes_without_a_kernel_are_refused() {
    let refused = |heads: AttentionShape| {
        AttendPlan::new(&AttendShape { heads, ..SHAPE }, &[]).unwrap_err().to_string()
    };
    assert_eq!(refused(AttentionShape { heads: 3, ..HEADS }), "attention: 3 heads over 2 of keys");
    assert_eq!(
        refused(AttentionShape { value_width: 513, ..HEADS }),
        "attention: keys of 64 and values of 513"
    );
    let short = AttentionSpan { rows: 2, past: 15, blocks: &[0] };
    let error = AttendPlan::new(&SHAPE, &[short]).unwrap_err().to_string();
    assert_eq!(error, "attention: 1 blocks for 17 positions");
}

#[test]
fn what_is_no_number_is_kept_as_such() {
    let row = |kind| {
        let shape = AttendShape { kind, ..SHAPE };
        let plan = AttendPlan::new(&shape, &[AttentionSpan { rows: 1, past: 0, blocks: &[0] }]).unwrap();
        let tables = plan.upload(&device(), &shape).unwrap();
        let mut x = vec![1.0; 128];
        (x[3], x[4], x[5]) = (f32::NAN, f32::INFINITY, f32::NEG_INFINITY);
        let both = Both::new(16, 128, kind);
        append(&device(), kind, &tables, floats(&x).array(4), 128, both.arrays()).unwrap();
        both.quants.bytes()
    };
    let half = |i: usize| half::f16::from_le_bytes(row(KvFormat::F16)[2 * i..2 * i + 2].try_into().unwrap());
    assert!(half(3).is_nan());
    assert_eq!([4, 5, 6].map(|i| half(i).to_f32()), [65504.0, -65504.0, 1.0]);
    let float = f32::from_le_bytes(row(KvFormat::F32)[12..16].try_into().unwrap());
    assert!(float.is_nan());
}

/// The twin detects errors that a GPU would not report.
#[test]
fn an_index_beyond_its_array_is_told() {
    let twin = Twin::default();
    let plan = AttendPlan::new(&SHAPE, &[AttentionSpan { rows: 1, past: 0, blocks: &[0] }]).unwrap();
    let tables = plan.upload(&twin, &SHAPE).unwrap();
    let (x, arrays) = (floats(&[0.0; 128]), Host::of(&[0; 100]));
    let rows = KvArrays { quants: arrays.array(1), scales: Array::default() };
    let error = append(&twin, KvFormat::F32, &tables, x.array(4), 128, rows).unwrap_err().to_string();
    assert!(error.contains("kv.cuh") && error.contains("rows.quants.len"), "{error}");
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
        chunked in any::<bool>(),
        softcap in proptest::option::of(0.5f32..9.0),
        spans in proptest::collection::vec((0usize..60, 1usize..9), 1..4),
    ) {
        let kind = if half { KvFormat::F16 } else { KvFormat::F32 };
        let heads = AttentionShape {
            heads: kv_heads * group, kv_heads, key_width, value_width, window, chunked, softcap, ..HEADS
        };
        let shape = AttendShape { heads, block_tokens, kind };
        check(&shape, &spans, sinks);
    }
}
