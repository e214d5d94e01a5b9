use proptest::prelude::*;

use super::*;
use crate::KvFormat;
use crate::testing::{assert_close, assert_same, cpus, noise};

/// Attention over one or more sequences, and the division of their rows into calls.
#[derive(Clone, Debug)]
struct Case {
    shape: AttentionShape,
    format: KvFormat,
    sinks: bool,
    block_tokens: usize,
    /// The positions of each sequence.
    lengths: Vec<usize>,
    /// Number of positions in the cache before the first call.
    past: usize,
    /// Number of positions shared with the first sequence, in its blocks if these are whole.
    shared: usize,
    seed: u64,
}

impl Case {
    fn plain() -> Case {
        let shape = AttentionShape {
            heads: 4,
            kv_heads: 2,
            key_width: 32,
            value_width: 32,
            values_in_keys: false,
            scale: 0.3,
            softcap: None,
            window: None,
            chunked: false,
        };
        Case {
            shape,
            format: KvFormat::F32,
            sinks: false,
            block_tokens: 16,
            lengths: vec![75],
            past: 0,
            shared: 0,
            seed: 1,
        }
    }

    /// The numbers for every position of sequence `sequence`: queries, keys, values.
    fn numbers(&self, sequence: usize) -> [Vec<f32>; 3] {
        let AttentionShape { heads, kv_heads, key_width, value_width, .. } = self.shape;
        let length = self.lengths[sequence];
        let numbers = |sequence: usize, width: usize, positions: usize| -> Vec<f32> {
            let seed = self.seed.wrapping_mul(1000) + sequence as u64 * 10 + width as u64;
            noise(seed, positions * width).into_iter().map(|x| 2.0 * x).collect()
        };
        let cached = |width: usize| {
            let mut own = numbers(sequence, width, length);
            let shared = self.shared(sequence) * width;
            own[..shared].copy_from_slice(&numbers(0, width, self.lengths[0])[..shared]);
            own
        };
        let [key, value] = [kv_heads * key_width, kv_heads * value_width].map(cached);
        [numbers(sequence, heads * key_width, length), key, value]
    }

    /// How many positions a sequence shares with the first.
    fn shared(&self, sequence: usize) -> usize {
        self.shared.min(self.lengths[0]).min(self.lengths[sequence])
    }

    fn sink_scores(&self) -> Option<Vec<f32>> {
        self.sinks.then(|| noise(self.seed, self.shape.heads))
    }

    /// The results of all rows from `past` on, sequence by sequence.
    /// Calls take `step` rows of every sequence; `order` determines the order of blocks.
    fn run(&self, cpu: &Cpu, step: usize, order: u64) -> Vec<f32> {
        let AttentionShape { heads, kv_heads, key_width, value_width, .. } = self.shape;
        let size = self.block_tokens;
        let counts: Vec<usize> = self.lengths.iter().map(|length| length.div_ceil(size)).collect();
        let mut places: Vec<u32> = (0..counts.iter().sum::<usize>() as u32).collect();
        let keys_of_order = noise(order, places.len());
        places.sort_by(|&a, &b| keys_of_order[a as usize].total_cmp(&keys_of_order[b as usize]));
        let slots = places.len() * size;
        let mut keys = KvRows::zeros(slots, kv_heads * key_width, self.format).unwrap();
        let mut values = KvRows::zeros(slots, kv_heads * value_width, self.format).unwrap();
        let mut tables: Vec<Vec<u32>> = Vec::new();
        for count in counts {
            let mut table: Vec<u32> = places.drain(..count).collect();
            let shared = self.shared(tables.len()) / size;
            if let Some(first) = tables.first() {
                table[..shared].copy_from_slice(&first[..shared]);
            }
            tables.push(table);
        }
        let numbers: Vec<_> = (0..self.lengths.len()).map(|sequence| self.numbers(sequence)).collect();
        let write = |keys: &mut KvRows, values: &mut KvRows, sequence: usize, position: usize| {
            let [_, k, v]: &[Vec<f32>; 3] = &numbers[sequence];
            let slot = tables[sequence][position / size] as usize * size + position % size;
            keys.write(cpu, slot, &k[position * kv_heads * key_width..][..kv_heads * key_width]);
            values.write(cpu, slot, &v[position * kv_heads * value_width..][..kv_heads * value_width]);
        };

        let mut done: Vec<usize> = self.lengths.iter().map(|&length| self.past.min(length)).collect();
        for (sequence, &done) in done.iter().enumerate() {
            (0..done).for_each(|position| write(&mut keys, &mut values, sequence, position));
        }
        let mut out = vec![Vec::new(); self.lengths.len()];
        while done != self.lengths {
            let (mut q, mut now, mut seen_tables) = (Vec::new(), Vec::new(), Vec::new());
            for (sequence, &length) in self.lengths.iter().enumerate() {
                let (past, rows) = (done[sequence], step.min(length - done[sequence]));
                (past..past + rows).for_each(|position| write(&mut keys, &mut values, sequence, position));
                q.extend_from_slice(
                    &numbers[sequence][0][past * heads * key_width..][..rows * heads * key_width],
                );
                // Entries of unused blocks have a number that must not be used.
                let mut table = tables[sequence].clone();
                let oldest = self.shape.oldest(past);
                table[..oldest / size].fill(u32::MAX);
                seen_tables.push(table);
                now.push((past, rows));
                done[sequence] += rows;
            }
            let spans: Vec<AttentionSpan> = now
                .iter()
                .zip(&seen_tables)
                .map(|(&(past, rows), blocks)| AttentionSpan { rows, past, blocks })
                .collect();
            let rows: usize = now.iter().map(|now| now.1).sum();
            let mut y = vec![f32::NAN; rows * heads * value_width];
            let values = (!self.shape.values_in_keys).then_some(&values);
            let sinks = self.sink_scores();
            attend(cpu, &self.shape, &keys, values, size, &spans, sinks.as_deref(), &q, &mut y);
            let mut rest = &y[..];
            for (out, (_, rows)) in out.iter_mut().zip(now) {
                let (own, later) = rest.split_at(rows * heads * value_width);
                out.extend_from_slice(own);
                rest = later;
            }
        }
        out.concat()
    }

    /// The results according to the formula.
    fn exact(&self) -> Vec<f64> {
        let AttentionShape { heads, kv_heads, key_width, value_width, scale, .. } = self.shape;
        let AttentionShape { softcap, window, chunked, .. } = self.shape;
        let mut out = Vec::new();
        for (sequence, &length) in self.lengths.iter().enumerate() {
            let [q, k, v] = self.numbers(sequence);
            let cached = |x: &[f32], width| self.as_cached(x, width);
            let (k, v) = (cached(&k, kv_heads * key_width), cached(&v, kv_heads * value_width));
            for position in self.past.min(length)..length {
                for head in 0..heads {
                    let kv_head = head / (heads / kv_heads);
                    let q = &q[(position * heads + head) * key_width..][..key_width];
                    let oldest = match window {
                        Some(window) if chunked => position - position % window,
                        window => window.map_or(0, |window| (position + 1).saturating_sub(window)),
                    };
                    let key = |p: usize| &k[(p * kv_heads + kv_head) * key_width..][..key_width];
                    let value = |p: usize| match self.shape.values_in_keys {
                        true => &key(p)[..value_width],
                        false => &v[(p * kv_heads + kv_head) * value_width..][..value_width],
                    };
                    let dot = |k: &[f32]| -> f64 {
                        q.iter().zip(k).map(|(&q, &k)| f64::from(q) * f64::from(k)).sum()
                    };
                    let score = |p: usize| {
                        let score = dot(key(p)) * f64::from(scale);
                        softcap.map(f64::from).map_or(score, |cap| cap * (score / cap).tanh())
                    };
                    let weights: Vec<f64> = (oldest..=position).map(|p| score(p).exp()).collect();
                    let sink = self.sink_scores().map_or(0.0, |sinks| f64::from(sinks[head]).exp());
                    let total = weights.iter().sum::<f64>() + sink;
                    out.extend((0..value_width).map(|d| {
                        let terms = weights.iter().zip(oldest..);
                        terms.map(|(weight, p)| weight * f64::from(value(p)[d])).sum::<f64>() / total
                    }));
                }
            }
        }
        out
    }

    /// The numbers after a round trip through the cache format.
    fn as_cached(&self, x: &[f32], width: usize) -> Vec<f32> {
        let cpu = Cpu::new(Isa::SCALAR, crate::ThreadPool::new(1));
        let mut kv = KvRows::zeros(x.len() / width, width, self.format).unwrap();
        kv.write(&cpu, 0, x);
        let mut cached = vec![0.0; x.len()];
        kv.read(cpu.isa, 0, 0, width, &mut cached);
        cached
    }

    /// Checks that results are close to the formula, and bitwise equal however they are computed.
    fn check(&self) {
        let all = cpus();
        let wanted = self.run(&all[0], usize::MAX, 1);
        assert_close(&wanted, &self.exact(), 1e-5);
        for (i, cpu) in all.iter().enumerate() {
            for step in [usize::MAX, 1, 5, 64] {
                let y = self.run(cpu, step, i as u64 + 2);
                assert_same(&wanted, &y, &format!("{self:?}, {step} rows a call on {cpu:?}"));
            }
        }
    }
}

fn cases() -> impl Strategy<Value = Case> {
    let heads = prop_oneof![Just((4, 2)), Just((3, 3)), Just((5, 1)), Just((8, 2)), Just((1, 1))];
    let widths = prop_oneof![Just((32, 32)), Just((64, 32)), Just((64, 64)), Just((16, 16)), Just((80, 80))];
    let format = prop_oneof![Just(KvFormat::F32), Just(KvFormat::F16), Just(KvFormat::Q8_0)];
    let window = prop_oneof![Just(None), (1usize..70).prop_map(Some)];
    let lengths = prop::collection::vec(1usize..100, 1..4);
    let block_tokens = prop_oneof![Just(16), Just(32), Just(64), Just(7)];
    let softcap = prop_oneof![Just(None), (0.5f32..9.0).prop_map(Some)];
    let rest = (any::<bool>(), 0usize..60, 0u64..1000, softcap, any::<bool>());
    (heads, widths, format, window, lengths, block_tokens, rest).prop_map(
        |((heads, kv_heads), (key_width, value_width), format, window, lengths, block_tokens, rest)| {
            let scale = 1.0 / (key_width as f32).sqrt();
            let (sinks, past, seed, softcap, chunked) = rest;
            let shape = AttentionShape {
                heads,
                kv_heads,
                key_width,
                value_width,
                values_in_keys: kv_heads == 1 && value_width < key_width,
                scale,
                softcap,
                window,
                chunked,
            };
            let fits = [key_width, value_width].iter().all(|width| (kv_heads * width).is_multiple_of(32));
            let format = if fits { format } else { KvFormat::F16 };
            Case { shape, format, sinks, block_tokens, lengths, past, shared: past / 2, seed }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_row_depends_on_what_it_sees_alone(case in cases()) {
        case.check();
    }
}

#[test]
fn shapes_of_models() {
    let shape = |heads, kv_heads, key_width, value_width, window| AttentionShape {
        heads,
        kv_heads,
        key_width,
        value_width,
        values_in_keys: kv_heads == 1 && value_width < key_width,
        scale: 1.0 / (key_width as f32).sqrt(),
        softcap: None,
        window,
        chunked: false,
    };
    let shapes = [
        shape(4, 2, 128, 128, None),
        shape(2, 1, 256, 256, Some(64)),
        shape(8, 1, 64, 64, Some(33)),
        shape(5, 1, 576, 512, None),
        shape(3, 3, 96, 96, None),
    ];
    for (shape, format) in shapes.into_iter().zip([KvFormat::F16, KvFormat::Q8_0].into_iter().cycle()) {
        Case { shape, format, lengths: vec![70, 3], ..Case::plain() }.check();
    }
}

/// Splits, in sequences for which every call computes only a few of the last rows.
#[test]
fn far_positions() {
    let shape = |heads, kv_heads, width, window| AttentionShape {
        heads,
        kv_heads,
        key_width: width,
        value_width: width,
        values_in_keys: false,
        scale: 1.0 / (width as f32).sqrt(),
        softcap: None,
        window,
        chunked: false,
    };
    let shapes = [
        (shape(4, 2, 64, None), KvFormat::F16, 16),
        (shape(4, 2, 64, None), KvFormat::Q8_0, 16),
        (shape(3, 3, 32, None), KvFormat::F32, 7),
        (shape(6, 2, 32, Some(300)), KvFormat::F16, 32),
        (shape(10, 1, 64, Some(SPLIT)), KvFormat::Q8_0, 16),
        (shape(2, 1, 40, None), KvFormat::F16, 16),
    ];
    for (shape, format, block_tokens) in shapes {
        let (past, sinks) = (3 * SPLIT - 6, format == KvFormat::F16);
        let lengths = vec![3 * SPLIT + 5, 2 * SPLIT];
        Case { shape, format, block_tokens, sinks, lengths, past, ..Case::plain() }.check();
    }
    // Chunks that don't end at splits, and scores near their cap.
    let odd = AttentionShape { chunked: true, softcap: Some(1.5), ..shape(4, 2, 64, Some(SPLIT + 70)) };
    let (past, lengths) = (2 * SPLIT + 130, vec![2 * SPLIT + 150, 3 * SPLIT + 9]);
    Case { shape: odd, format: KvFormat::F16, past, lengths, ..Case::plain() }.check();
    let shape = AttentionShape { value_width: 64, values_in_keys: true, ..shape(5, 1, 96, None) };
    let (past, lengths) = (2 * SPLIT - 3, vec![2 * SPLIT + 3]);
    Case { shape, format: KvFormat::F16, past, lengths, ..Case::plain() }.check();
}

/// Sequences with a common prefix process its splits together: all of them, only the first ones, or
/// only the last ones.
#[test]
fn shared_prefixes() {
    let far = 2 * SPLIT;
    let cases = [
        ((4, 2), None, 16, far + 20, vec![far + 30, far + 26, far + 29, far + 40]),
        ((4, 2), None, 7, far + 20, vec![far + 30, far + 26]),
        ((8, 2), Some(SPLIT + 50), 16, far + 9, vec![far + 30, far + 26, SPLIT + 10, far + 21, far + 29]),
        ((3, 3), None, 16, SPLIT + 100, vec![far + 30, SPLIT - 4, far + 26]),
        ((12, 1), None, 32, far, vec![far + 8, far + 3, far + 5]),
        ((1, 1), None, 16, far, vec![far + 3; 20]),
    ];
    let formats = [KvFormat::F16, KvFormat::Q8_0, KvFormat::F32];
    for (i, ((heads, kv_heads), window, block_tokens, shared, lengths)) in cases.into_iter().enumerate() {
        let shape = AttentionShape { heads, kv_heads, window, ..Case::plain().shape };
        let format = formats[i % formats.len()];
        let (past, sinks) = (lengths.iter().min().unwrap() - 3, i == 1);
        let case = Case { shape, format, block_tokens, sinks, lengths, past, shared, ..Case::plain() };
        case.check();
    }
}

/// The reads of a plan: a split shared by four sequences once, and each sequence's own.
#[test]
fn a_shared_split_is_read_once() {
    let shape = AttentionShape { heads: 8, kv_heads: 4, ..Case::plain().shape };
    let past = 4 * SPLIT + 40;
    let count = past / 16 + 1;
    let table = |own: usize| -> Vec<u32> {
        (0..count).map(|i| if i < 3 * SPLIT / 16 + 2 { i } else { own * count + i } as u32).collect()
    };
    let tables: Vec<Vec<u32>> = [3, 1, 4, 2].map(table).to_vec();
    let spans: Vec<AttentionSpan> =
        tables.iter().map(|blocks| AttentionSpan { rows: 1, past, blocks }).collect();
    let read = |spans: &[AttentionSpan]| {
        let mut plan = Plan::new();
        plan.make(1, Spans { shape: &shape, block_tokens: 16, spans });
        let mut seen = vec![0; plan.units.len()];
        let mut reads = 0;
        for task in &plan.tasks {
            reads += task.splits.len() * plan.units[task.units.start].kv_heads.len();
            task.units.clone().for_each(|unit| seen[unit] += task.splits.len());
        }
        assert!(seen.iter().zip(&plan.units).all(|(&seen, unit)| seen == unit.splits().len()));
        reads / shape.kv_heads
    };
    assert_eq!(read(&spans[..1]), 5);
    assert_eq!(read(&spans), 3 + 4 * 2, "three in common, two of each");
}

/// Few and many queries of a key head are computed in different ways.
#[test]
fn groups_and_rows_of_every_size() {
    for (group, format) in (1..=16).zip([KvFormat::F16, KvFormat::Q8_0, KvFormat::F32].into_iter().cycle()) {
        let shape = AttentionShape { heads: 2 * group, ..Case::plain().shape };
        Case { shape, format, lengths: vec![TILE + 9], past: TILE - 3, ..Case::plain() }.check();
    }
    for (rows, format) in
        (1..=9).chain([40]).zip([KvFormat::Q8_0, KvFormat::F16, KvFormat::F32].into_iter().cycle())
    {
        let past = SPLIT - 4;
        Case { format, lengths: vec![past + rows], past, ..Case::plain() }.check();
    }
}

#[test]
fn a_window_that_holds_everything_changes_nothing() {
    let case = Case::plain();
    let mut windowed = case.clone();
    windowed.shape.window = Some(75);
    let cpu = &cpus()[0];
    assert_same(&case.run(cpu, 7, 1), &windowed.run(cpu, 7, 1), "window");
}

#[test]
fn a_sink_far_below_every_score_changes_nothing() {
    let case = Case::plain();
    let plain = case.run(&cpus()[0], 75, 1);
    let [q, k, v] = case.numbers(0);
    for cpu in cpus() {
        let mut keys = KvRows::zeros(80, 64, KvFormat::F32).unwrap();
        let mut values = KvRows::zeros(80, 64, KvFormat::F32).unwrap();
        keys.write(&cpu, 0, &k);
        values.write(&cpu, 0, &v);
        let spans = [AttentionSpan { rows: 75, past: 0, blocks: &[0, 1, 2, 3, 4] }];
        for sink in [-200.0, -1e30, f32::NEG_INFINITY] {
            let mut y = vec![0.0; plain.len()];
            attend(&cpu, &case.shape, &keys, Some(&values), 16, &spans, Some(&[sink; 4]), &q, &mut y);
            assert_same(&plain, &y, &format!("sink {sink}"));
        }
        let mut y = vec![0.0; plain.len()];
        attend(&cpu, &case.shape, &keys, Some(&values), 16, &spans, Some(&[1e4; 4]), &q, &mut y);
        assert!(y.iter().all(|&y| y == 0.0), "a sink far above every score takes everything");
    }
}

#[test]
fn great_scores_stay_finite() {
    let mut case = Case::plain();
    case.shape.scale = 1e4;
    let y = case.run(&cpus()[0], 75, 1);
    assert!(y.iter().all(|y| y.is_finite()));
    assert_close(&y[..1], &[f64::from(case.numbers(0)[2][0])], 1e-6);
}

#[test]
fn no_rows_are_no_work() {
    let case = Case { lengths: vec![], ..Case::plain() };
    let kv = KvRows::zeros(0, 64, KvFormat::F32).unwrap();
    attend(&cpus()[1], &case.shape, &kv, Some(&kv), 16, &[], None, &[], &mut []);
}
