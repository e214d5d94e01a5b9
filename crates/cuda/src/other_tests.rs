//! The delta rule, routing, norms, activations and candidates.

use alara_kernels::{Cpu, Isa, KvRows, ThreadPool};
use proptest::prelude::*;

use crate::testing::{assert_close, device, devices, floats, noise, to_floats, to_words, words};
use crate::twin::Host;
use crate::*;

fn cpu() -> Cpu {
    Cpu::new(Isa::available().next().unwrap(), ThreadPool::new(1))
}

/// Spans of (past, rows, rows after which state is saved): computed in one step on the device, in
/// both forms, and compared with each alone on the CPU.
#[track_caller]
fn check_delta(shape: &DeltaShape, spans: &[(bool, usize, Vec<usize>)]) {
    let DeltaShape { value_heads, value_width, kernel, .. } = *shape;
    let channels = shape.channels();
    let (history_size, size) = shape.state_sizes();
    let rows: usize = spans.iter().map(|span| span.1).sum();
    let (qkv, beta, alpha) =
        (noise(1, rows * channels), noise(2, rows * value_heads), noise(3, rows * value_heads));
    let (conv, dt) = (noise(4, channels * kernel), noise(5, value_heads));
    let a: Vec<f32> = noise(6, value_heads).iter().map(|x| -x.abs()).collect();
    let states: Vec<Vec<f32>> = (0..spans.len() as u64).map(|nth| noise(20 + nth, size)).collect();
    let histories: Vec<Vec<f32>> = (0..spans.len() as u64).map(|nth| noise(40 + nth, history_size)).collect();

    let (mut wanted, mut wanted_saves) = (Vec::new(), Vec::new());
    let mut row = 0;
    for (nth, (past, rows, saves)) in spans.iter().enumerate() {
        let (mut state, mut history) = if *past {
            (states[nth].clone(), histories[nth].clone())
        } else {
            (vec![0.0; size], vec![0.0; history_size])
        };
        let mut done = 0;
        for &end in saves.iter().chain([rows]) {
            let part = |x: &[f32], width: usize| x[(row + done) * width..(row + end) * width].to_vec();
            let x = part(&qkv, channels);
            let mut u = vec![0.0; x.len()];
            alara_kernels::conv(&cpu(), &conv, None, kernel, channels, &mut history, &x, &mut u);
            let mut y = vec![0.0; (end - done) * value_heads * value_width];
            let (beta, alpha) = (part(&beta, value_heads), part(&alpha, value_heads));
            alara_kernels::delta(
                &cpu(),
                shape,
                DeltaForm::Recurrent,
                &u,
                &beta,
                &alpha,
                &a,
                &dt,
                &mut state,
                &mut y,
            );
            wanted.extend(y);
            wanted_saves.push((state.clone(), history.clone()));
            done = end;
        }
        row += rows;
    }

    let forms = [DeltaForm::Recurrent, DeltaForm::Chunked];
    for (on, form) in devices().iter().flat_map(|on| forms.map(|form| (on, form))) {
        let hosts = |all: &[Vec<f32>]| all.iter().map(|x| floats(x)).collect::<Vec<Host>>();
        let (states, histories) = (hosts(&states), hosts(&histories));
        let saved: Vec<[Host; 2]> = (wanted_saves.iter())
            .map(|_| [on.alloc(4 * size).unwrap(), on.alloc(4 * history_size).unwrap()])
            .collect();
        let mut to = saved
            .iter()
            .map(|[state, history]| DeltaState { state: state.array(4), history: history.array(4) });
        let parts: Vec<DeltaSpan> = (spans.iter().enumerate())
            .map(|(nth, (past, rows, saves))| DeltaSpan {
                rows: *rows,
                before: if *past {
                    DeltaState { state: states[nth].array(4), history: histories[nth].array(4) }
                } else {
                    DeltaState::default()
                },
                saves: saves.iter().chain([rows]).map(|&rows| (rows, to.next().unwrap())).collect(),
            })
            .collect();
        let inputs = [&qkv, &beta, &alpha, &conv, &a, &dt].map(|x| floats(x));
        let [qkv, beta, alpha, conv, a, dt] = inputs.each_ref().map(|host| host.array(4));
        let y = on.alloc(4 * wanted.len()).unwrap();
        delta(on, shape, form, &parts, &DeltaInput { qkv, beta, alpha, conv, a, dt }, y.array(4)).unwrap();
        let what = format!("{form:?} {shape:?} {spans:?}");
        assert_close(&to_floats(&y), &wanted, 3e-5, &what);
        for ([state, history], (wanted, wanted_history)) in saved.iter().zip(&wanted_saves) {
            assert_close(&to_floats(state), wanted, 3e-5, &what);
            assert_close(&to_floats(history), wanted_history, 0.0, &what);
        }
    }
}

const DELTA: DeltaShape = DeltaShape {
    key_heads: 2,
    value_heads: 4,
    grouped: false,
    key_width: 16,
    value_width: 24,
    kernel: 4,
    epsilon: 1e-6,
};

#[test]
fn the_delta_rule_goes_on_and_saves_on_the_way() {
    check_delta(&DELTA, &[(false, 1, vec![])]);
    check_delta(&DELTA, &[(true, 11, vec![1, 2, 9]), (false, 3, vec![3]), (true, 2, vec![])]);
    for key_width in [5, 33, 64, 100, 128, 200] {
        check_delta(
            &DeltaShape { key_width, value_width: 33, key_heads: 1, value_heads: 2, ..DELTA },
            &[(true, 3, vec![])],
        );
    }
    check_delta(&DeltaShape { kernel: 1, ..DELTA }, &[(true, 5, vec![2])]);
    check_delta(&DeltaShape { grouped: true, ..DELTA }, &[(true, 5, vec![2]), (false, 20, vec![])]);
}

#[test]
fn chunks_follow_each_other_and_end_where_state_is_saved() {
    check_delta(&DELTA, &[(true, 3 * CHUNK + 5, vec![]), (false, CHUNK, vec![]), (true, 1, vec![])]);
    check_delta(&DELTA, &[(true, 40, vec![0, 7, 7, 24, 39])]);
    let wide = DeltaShape { key_width: 256, value_width: 40, key_heads: 1, value_heads: 1, ..DELTA };
    check_delta(&wide, &[(true, CHUNK + 1, vec![])]);
}

#[test]
fn saves_out_of_order_are_refused() {
    let span = DeltaSpan { rows: 3, before: DeltaState::default(), saves: vec![(2, DeltaState::default())] };
    let input = DeltaInput {
        qkv: Array::default(),
        beta: Array::default(),
        alpha: Array::default(),
        conv: Array::default(),
        a: Array::default(),
        dt: Array::default(),
    };
    let form = DeltaForm::Recurrent;
    let error = delta(&device(), &DELTA, form, &[span], &input, Array::default()).unwrap_err().to_string();
    assert_eq!(error, "delta rule: saves of span 0 don't ascend to its end");
}

/// Reference routing, by sorting on the host.
fn routes(router: &Router, row: &[f32], bias: &[f32]) -> (Vec<u32>, Vec<f32>) {
    let softmax = |x: &[f32]| {
        let most = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f32 = x.iter().map(|x| (x - most).exp()).sum();
        x.iter().map(|x| (x - most).exp() / sum).collect::<Vec<f32>>()
    };
    let scores = match router.score {
        Score::Softmax => softmax(row),
        Score::Sigmoid => row.iter().map(|x| 1.0 / (1.0 + (-x).exp())).collect(),
        Score::SoftmaxOfChosen | Score::SigmoidOfChosen => row.to_vec(),
    };
    let mut order: Vec<usize> = (0..row.len()).collect();
    let rank = |i: usize| scores[i] + bias.get(i).copied().unwrap_or(0.0);
    let (groups, taken) = router.groups;
    let size = row.len() / groups;
    let of_group = |group: usize| {
        let mut ranks: Vec<f32> = (group * size..(group + 1) * size).map(rank).collect();
        ranks.sort_by(|a, b| b.total_cmp(a));
        ranks.iter().take(2).sum::<f32>()
    };
    let mut best: Vec<usize> = (0..groups).collect();
    best.sort_by(|&a, &b| of_group(b).total_cmp(&of_group(a)).then(a.cmp(&b)));
    order.retain(|&at| best[..taken].contains(&(at / size)));
    order.sort_by(|&a, &b| rank(b).total_cmp(&rank(a)).then(a.cmp(&b)));
    order.truncate(router.used);
    let mut weights: Vec<f32> = order.iter().map(|&i| scores[i]).collect();
    if router.score == Score::SoftmaxOfChosen {
        weights = softmax(&weights);
    }
    if router.score == Score::SigmoidOfChosen {
        weights.iter_mut().for_each(|x| *x = 1.0 / (1.0 + (-*x).exp()));
    }
    if router.normalise {
        let sum = weights.iter().sum::<f32>().max(6.103_515_6e-5);
        weights.iter_mut().for_each(|x| *x /= sum);
    }
    weights.iter_mut().for_each(|x| *x *= router.scale);
    (order.into_iter().map(|i| i as u32).collect(), weights)
}

#[test]
fn routing_is_the_hosts() {
    for score in [Score::Softmax, Score::Sigmoid, Score::SoftmaxOfChosen, Score::SigmoidOfChosen] {
        for (count, used, groups, normalise, scale) in [
            (4, 2, (1, 1), true, 1.0),
            (128, 8, (1, 1), false, 2.5),
            (33, 33, (1, 1), true, 1.0),
            (256, 8, (8, 4), true, 2.5),
            (120, 5, (40, 3), false, 1.0),
            (6, 2, (6, 3), false, 1.0),
        ] {
            let router = Router { count, used, groups, score, normalise, scale };
            let mut logits: Vec<f32> = noise(count as u64, 5 * count).iter().map(|x| 4.0 * x).collect();
            // Include equal ones.
            logits[1] = logits[2];
            logits[count..2 * count].fill(0.5);
            let bias = if used == 8 { noise(99, count) } else { Vec::new() };
            let (experts, weights): (Vec<_>, Vec<_>) =
                logits.chunks(count).map(|row| routes(&router, row, &bias)).unzip();
            for on in devices() {
                let (logits, bias) = (floats(&logits), floats(&bias));
                let [found, given] = [(); 2].map(|()| on.alloc(20 * used).unwrap());
                route(&on, &router, logits.array(4), bias.array(4), found.array(4), given.array(4)).unwrap();
                assert_eq!(to_words(&found), experts.concat(), "{router:?}");
                assert_close(&to_floats(&given), &weights.concat(), 1e-5, "weights");
            }
        }
    }
}

#[test]
fn places_are_sorted_by_expert() {
    let experts: Vec<u32> = (0..300).map(|i| [7, 0, 7, 7, 2][i % 5]).collect();
    for on in devices() {
        let order = on.alloc(4 * 300).unwrap();
        let tiles = on.alloc(16 * max_tiles(300, 9)).unwrap();
        bucket(&on, 9, words(&experts).array(4), order.array(4), tiles.array(16)).unwrap();
        let mut wanted: Vec<u32> = (0..300).collect();
        wanted.sort_by_key(|&place| experts[place as usize]);
        assert_eq!(to_words(&order), wanted);
        let tiles: Vec<[u32; 3]> = to_words(&tiles)
            .chunks(4)
            .map(|tile| [tile[0], tile[1], tile[2]])
            .filter(|tile| tile[2] > 0)
            .collect();
        let wanted = [[0, 0, 60], [2, 60, 60], [7, 120, 64], [7, 184, 64], [7, 248, 52]];
        assert_eq!(tiles, wanted);
    }
}

#[test]
fn experts_are_weighed_and_summed() {
    let (x, weights) = (noise(1, 3 * 2 * 300), noise(2, 6));
    let number =
        |row: usize, e: usize| (0..2).map(|n| weights[2 * row + n] * x[(2 * row + n) * 300 + e]).sum::<f32>();
    let wanted: Vec<f32> = (0..900).map(|i| number(i / 300, i % 300)).collect();
    for on in devices() {
        let y = on.alloc(4 * 900).unwrap();
        weigh(&on, floats(&x).array(4), floats(&weights).array(4), 2, y.array(4)).unwrap();
        assert_close(&to_floats(&y), &wanted, 1e-6, "sum of experts");
    }
}

#[test]
fn norms_and_sums() {
    for width in [8, 100, 2880, 10240] {
        let [x, more, weight] = [1, 2, 3].map(|seed| noise(seed, 3 * width));
        let weight = &weight[..width];
        let sum: Vec<f32> = x.iter().zip(&more).map(|(x, more)| x + more).collect();
        for (with, summed) in [(&more[..], &sum), (&[], &x)] {
            let mut wanted = vec![0.0; x.len()];
            alara_kernels::rms_norm(&cpu(), summed, weight, 1e-6, &mut wanted);
            for on in devices() {
                let (x, more, weight) = (floats(&x), floats(with), floats(weight));
                let [both, y] = [(); 2].map(|()| on.alloc(4 * wanted.len()).unwrap());
                let quants = alloc_quants(&on, width, wanted.len());
                let (terms, results) = ([x.array(4), more.array(4)], [both.array(4), y.array(4)]);
                add_norm(&on, terms, weight.array(4), 1e-6, results, quants.array(Q8_1_BYTES)).unwrap();
                assert_close(&to_floats(&y), &wanted, 1e-5, "norm");
                check_quants(&to_floats(&y), &quants);
                assert_close(&to_floats(&both), summed, 0.0, "sum");
            }
        }
    }
}

/// Memory for the quants of `len` numbers in rows of `width`; empty if rows aren't whole blocks.
fn alloc_quants(on: &impl Device<Memory = Host>, width: usize, len: usize) -> Host {
    on.alloc(if width.is_multiple_of(BLOCK) { Q8_1_BYTES * len / BLOCK } else { 0 }).unwrap()
}

/// Compares quants with the numbers that they represent.
#[track_caller]
fn check_quants(numbers: &[f32], quants: &Host) {
    let half = |bytes: &[u8]| half::f16::from_le_bytes(bytes.try_into().unwrap()).to_f32();
    for (block, quants) in numbers.chunks(BLOCK).zip(quants.bytes().chunks_exact(Q8_1_BYTES)) {
        let most = block.iter().fold(0.0f32, |most, x| most.max(x.abs()));
        let (scale, sum) = (half(&quants[..2]), half(&quants[2..4]));
        assert!((scale - most / 127.0).abs() <= most / 127.0 * 1e-3, "{scale} of {most}");
        assert!((sum - block.iter().sum::<f32>()).abs() <= 2e-3 * block.iter().map(|x| x.abs()).sum::<f32>());
        for (&x, &quant) in block.iter().zip(&quants[4..]) {
            assert!(
                (x - most / 127.0 * f32::from(quant as i8)).abs() <= 0.501 * most / 127.0,
                "{x} is {quant}"
            );
        }
    }
}

#[test]
fn activations_become_quants() {
    for (width, rows) in [(32, 1), (1024, 3), (2880, 2)] {
        let x: Vec<f32> =
            noise(7, width * rows).iter().enumerate().map(|(i, x)| x * (1 + i % 700) as f32).collect();
        for on in devices() {
            let quants = alloc_quants(&on, width, x.len());
            quantize(&on, floats(&x).array(4), width, quants.array(Q8_1_BYTES)).unwrap();
            check_quants(&x, &quants);
        }
    }
    // Zeros, NaN and infinity.
    for (x, shows) in [(0.0, false), (f32::NAN, true), (f32::INFINITY, true)] {
        let mut block = [0.0; BLOCK];
        block[5] = x;
        let quants = alloc_quants(&device(), BLOCK, BLOCK);
        quantize(&device(), floats(&block).array(4), BLOCK, quants.array(Q8_1_BYTES)).unwrap();
        let scale = half::f16::from_le_bytes(quants.bytes()[..2].try_into().unwrap());
        assert_eq!(!scale.is_finite(), shows, "{x}");
        assert!(shows || quants.bytes().iter().all(|&byte| byte == 0));
    }
    let x = floats(&[0.0; 40]);
    assert!(quantize(&device(), x.array(4), 40, x.array(Q8_1_BYTES)).is_err());
}

fn rows(host: &Host, width: usize) -> Rows {
    Rows { numbers: host.array(4), width, step: width }
}

#[test]
fn every_gate() {
    let none = Array::default();
    let (gate, up) = (noise(1, 600), noise(2, 600));
    let gate: Vec<f32> = gate.iter().map(|x| 9.0 * x).collect();
    for kind in [Gate::Silu, Gate::GeluTanh, Gate::Sigmoid, Gate::ClampedSwiglu] {
        let mut wanted = vec![0.0; 600];
        alara_kernels::gated(&cpu(), &gate, &up, &mut wanted, kind);
        let y = device().alloc(4 * 600).unwrap();
        gated(&device(), [rows(&floats(&gate), 100), rows(&floats(&up), 100)], y.array(4), none, kind)
            .unwrap();
        assert_close(&to_floats(&y), &wanted, 1e-5, &format!("{kind:?}"));
        // In the layout of a single product: a row of the gate, then the corresponding row of up.
        let both: Vec<f32> =
            (0..6).flat_map(|row| [&gate, &up].map(|half| &half[100 * row..][..100]).concat()).collect();
        let both = floats(&both);
        let half = |at: u64| Rows {
            numbers: Array { address: both.array(4).address + 400 * at, len: 1100 },
            width: 100,
            step: 200,
        };
        let y = device().alloc(4 * 600).unwrap();
        gated(&device(), [half(0), half(1)], y.array(4), none, kind).unwrap();
        assert_close(&to_floats(&y), &wanted, 1e-5, &format!("{kind:?} of halves"));
        let short = Rows { step: 201, ..half(1) };
        assert!(gated(&device(), [half(0), short], y.array(4), none, kind).is_err());
    }
    // NaN and infinity propagate.
    for kind in [Gate::Silu, Gate::GeluTanh, Gate::Sigmoid, Gate::ClampedSwiglu] {
        for (gate, up) in [(f32::NAN, 1.0), (1.0, f32::NAN)] {
            let y = device().alloc(4).unwrap();
            let (gate, up) = (floats(&[gate]), floats(&[up]));
            gated(&device(), [rows(&gate, 1), rows(&up, 1)], y.array(4), none, kind).unwrap();
            assert!(to_floats(&y)[0].is_nan(), "{kind:?} of {gate:?} and {up:?}");
        }
    }
    // One gate per row.
    let y = device().alloc(4 * 600).unwrap();
    let (gate_of_row, up_of_row) = (floats(&gate[..6]), floats(&up));
    gated(&device(), [rows(&gate_of_row, 1), rows(&up_of_row, 100)], y.array(4), none, Gate::Sigmoid)
        .unwrap();
    let wanted: Vec<f32> = (0..600).map(|i| up[i] / (1.0 + (-gate[i / 100]).exp())).collect();
    assert_close(&to_floats(&y), &wanted, 1e-5, "a gate a row");
    // In rows of whole blocks.
    for on in devices() {
        let (gate, up) = (floats(&gate[..576]), floats(&up[..576]));
        let (y, quants) = (on.alloc(4 * 576).unwrap(), alloc_quants(&on, 96, 576));
        gated(&on, [rows(&gate, 96), rows(&up, 96)], y.array(4), quants.array(Q8_1_BYTES), Gate::Silu)
            .unwrap();
        check_quants(&to_floats(&y), &quants);
    }
}

/// Compares the preparation for attention in one launch with separate operations on the CPU.
#[track_caller]
fn check_prepare(kind: KvFormat, key_width: usize, half: usize, adjacent: bool, norms: bool, values: bool) {
    let (heads, kv_heads, value_width, past, rows) = (6, 2, 32, 13, 5);
    let (q, k, v) = (
        noise(1, rows * heads * key_width),
        noise(2, rows * kv_heads * key_width),
        noise(3, rows * kv_heads * value_width),
    );
    let weights = noise(4, 2 * key_width);
    let angles = noise(5, rows * half);
    let (cos, sin): (Vec<f32>, Vec<f32>) = angles.iter().map(|x| (x.cos(), x.sin())).unzip();
    let ready = |x: &[f32], heads: usize, weight: &[f32]| {
        let mut y = x.to_vec();
        if norms {
            alara_kernels::rms_norm(&cpu(), x, weight, 1e-6, &mut y);
        }
        alara_kernels::rope(&cpu(), &mut y, heads * key_width, key_width, &cos, &sin, half, adjacent);
        y
    };
    let wanted = ready(&q, heads, &weights[..key_width]);
    let wanted_keys = ready(&k, kv_heads, &weights[key_width..]);
    let blocks = [2u32, 0, 1];
    let shape = AttendShape {
        heads: AttentionShape {
            heads,
            kv_heads,
            key_width,
            value_width,
            values_in_keys: false,
            scale: 1.0,
            softcap: None,
            window: None,
            chunked: false,
        },
        block_tokens: 8,
        kind,
    };
    for on in devices() {
        let plan = AttendPlan::new(&shape, &[AttentionSpan { rows, past, blocks: &blocks }]).unwrap();
        let tables = plan.upload(&on, &shape).unwrap();
        let bytes = |numbers: usize| match kind {
            KvFormat::F32 => (4 * numbers, 0),
            KvFormat::F16 => (2 * numbers, 0),
            KvFormat::Q8_0 => (numbers, numbers / 16),
        };
        let buffer = |width: usize| {
            let (quants, scales) = bytes(24 * kv_heads * width);
            [Host::of(&vec![0; quants]), Host::of(&vec![0; scales])]
        };
        let (key_buffer, value_buffer) = (buffer(key_width), buffer(value_width));
        let arrays = |buffer: &[Host; 2]| KvArrays { quants: buffer[0].array(1), scales: buffer[1].array(2) };
        let hosts = [&q, &k, &v, &cos, &sin].map(|x| floats(x));
        let [q, k, v, cos, sin] = hosts.each_ref().map(|host| host.array(4));
        let norm = [floats(&weights[..key_width]), floats(&weights[key_width..])];
        let shape = Heads {
            heads,
            kv_heads,
            key_width,
            value_width,
            norms: if norms { norm.each_ref().map(|host| host.array(4)) } else { Default::default() },
            epsilon: 1e-6,
            angles: [cos, sin],
            half,
            adjacent,
        };
        let y = on.alloc(4 * wanted.len()).unwrap();
        let v = if values { v } else { Array::default() };
        prepare(
            &on,
            &shape,
            kind,
            &tables,
            [q, k, v],
            [arrays(&key_buffer), arrays(&value_buffer)],
            y.array(4),
        )
        .unwrap();
        let what = format!("{kind:?} {key_width} {half} {adjacent} {norms}");
        assert_close(&to_floats(&y), &wanted, 1e-5, &what);
        // The keys in the CPU's form, read by attending to one position at a time.
        let mut keys = KvRows::zeros(24, kv_heads * key_width, kind).unwrap();
        for (row, x) in wanted_keys.chunks(kv_heads * key_width).enumerate() {
            let at = past + row;
            keys.write(&cpu(), blocks[at / 8] as usize * 8 + at % 8, x);
        }
        for (row, wanted) in wanted_keys.chunks(kv_heads * key_width).enumerate() {
            let at = past + row;
            let slot = blocks[at / 8] as usize * 8 + at % 8;
            let found = numbers_of(kind, &key_buffer, slot * kv_heads * key_width, kv_heads * key_width);
            let tolerance = if kind == KvFormat::F32 { 1e-5 } else { 0.02 };
            assert_close(&found, wanted, tolerance, &what);
        }
    }
}

/// The numbers of cached rows.
fn numbers_of(kind: KvFormat, [quants, scales]: &[Host; 2], first: usize, len: usize) -> Vec<f32> {
    let (quants, scales) = (quants.bytes(), scales.bytes());
    let half = |bytes: &[u8], i: usize| half::f16::from_le_bytes([bytes[2 * i], bytes[2 * i + 1]]).to_f32();
    (first..first + len)
        .map(|i| match kind {
            KvFormat::F32 => f32::from_le_bytes(quants[4 * i..4 * i + 4].try_into().unwrap()),
            KvFormat::F16 => half(&quants, i),
            KvFormat::Q8_0 => half(&scales, i / 32) * (f32::from(quants[i]) - 128.0),
        })
        .collect()
}

#[test]
fn queries_and_keys_are_made_ready_in_one_launch() {
    for kind in [KvFormat::F32, KvFormat::F16, KvFormat::Q8_0] {
        check_prepare(kind, 64, 32, false, true, true);
        check_prepare(kind, 96, 16, true, false, false);
    }
    check_prepare(KvFormat::F16, 20, 0, false, true, true);
}

#[track_caller]
fn check_candidates(logits: &[f32], mask: Option<&[u32]>, wanted: usize) {
    let allowed = |i: usize| mask.is_none_or(|mask| mask[i / 32] >> (i % 32) & 1 == 1);
    let mut order: Vec<usize> = (0..logits.len()).filter(|&i| allowed(i) && logits[i].is_finite()).collect();
    order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]).then(a.cmp(&b)));
    let tokens: Vec<u32> =
        order.iter().map(|&i| i as u32).chain(std::iter::repeat(u32::MAX)).take(wanted).collect();
    for on in devices() {
        let [values, found] = [(); 2].map(|()| on.alloc(4 * wanted).unwrap());
        let (logits_host, mask) = (floats(logits), words(mask.unwrap_or_default()));
        candidates(&on, logits_host.array(4), mask.array(4), values.array(4), found.array(4)).unwrap();
        assert_eq!(to_words(&found), tokens);
        for (value, &token) in to_floats(&values).iter().zip(&tokens) {
            assert_eq!(*value, logits.get(token as usize).copied().unwrap_or(f32::NEG_INFINITY));
        }
    }
}

#[test]
fn candidates_beyond_a_slice_and_fewer_than_wanted() {
    let mut logits: Vec<f32> = noise(1, 20_000).iter().map(|x| (x * 1000.0).round()).collect();
    (logits[7], logits[8], logits[9]) = (f32::NAN, f32::INFINITY, f32::NEG_INFINITY);
    let mask: Vec<u32> = noise(2, 625).iter().map(|x| x.to_bits()).collect();
    check_candidates(&logits, None, 40);
    check_candidates(&logits, Some(&mask), 40);
    let mut few = vec![0; 625];
    few[300] = 0b1010;
    check_candidates(&logits, Some(&few), 5);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn any_candidates(logits in proptest::collection::vec(-3i8..4, 1..700), wanted in 1usize..20) {
        let logits: Vec<f32> = logits.iter().map(|&x| f32::from(x)).collect();
        check_candidates(&logits, None, wanted);
    }

    #[test]
    fn any_delta(
        key_heads in 1usize..3, times in 1usize..3, key_width in 1usize..40, value_width in 1usize..70,
        kernel in 1usize..6, grouped: bool, spans in proptest::collection::vec((any::<bool>(), 1usize..40), 1..4),
    ) {
        let value_heads = key_heads * times;
        let shape =
            DeltaShape { key_heads, value_heads, grouped, key_width, value_width, kernel, epsilon: 1e-6 };
        let spans: Vec<_> = spans.into_iter().map(|(past, rows)| (past, rows, vec![rows / 2])).collect();
        check_delta(&shape, &spans);
    }
}
