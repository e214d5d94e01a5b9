//! Compares every op that combines several candle operations with its formula in f64.

mod delta;

use alara_text::gguf::{Gguf, Writer};

use super::*;
use crate::architecture::{Router, Score};
use crate::backend::{Heads, Span};
use crate::cache::SlotId;

/// Pseudorandom numbers between -1 and 1.
fn numbers(seed: usize, len: usize) -> Vec<f32> {
    let mut state = seed as u64 * 2_654_435_769 + 1;
    let next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    std::iter::repeat_with(next).take(len).collect()
}

/// The GPU, if this build can use one and this machine has one.
fn device() -> Device {
    static FOUND: std::sync::LazyLock<Device> = std::sync::LazyLock::new(|| {
        crate::device::Device::Auto.open().unwrap().map_or(Device::Cpu, |gpu| gpu.handle)
    });
    FOUND.clone()
}

fn array(numbers: &[f32], rows: usize) -> Tensor {
    Tensor::from_slice(numbers, (rows, numbers.len() / rows), &device()).unwrap()
}

fn vector(numbers: &[f32]) -> Tensor {
    Tensor::from_slice(numbers, numbers.len(), &device()).unwrap()
}

fn bytes(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

fn data(kind: TensorType, width: usize, rows: usize, bytes: Vec<u8>) -> TensorData {
    let file = Writer::new().tensor("w", &[width as u64, rows as u64], kind, bytes).bytes().unwrap();
    let gguf = Gguf::from_vec("w", file).unwrap();
    gguf.data(gguf.tensor("w").unwrap())
}

#[track_caller]
fn check_close(found: &Tensor, expected: &[f64]) {
    let found: Vec<f32> = found.flatten_all().unwrap().to_vec1().unwrap();
    assert_eq!(found.len(), expected.len());
    for (at, (a, b)) in found.iter().zip(expected).enumerate() {
        assert!((f64::from(*a) - b).abs() < 1e-5, "{at}: {a} is not {b}");
    }
}

fn step(spans: Vec<Span>) -> Step {
    let rows = spans.iter().map(|span| span.rows).sum();
    Step { tokens: vec![0; rows], spans, outputs: Vec::new() }
}

fn span(rows: usize, past: usize, blocks: &[u32], slot: u32) -> Span {
    Span { rows, past, blocks: blocks.to_vec(), windowed: blocks.to_vec(), slot: SlotId(slot), saves: vec![] }
}

#[test]
fn groups_are_split_and_joined_again() {
    let mut candle = Candle::on(device());
    let x = array(&numbers(1, 2 * 12), 2);
    let (a, b) = candle.split(&x, 4, 1).unwrap();
    check_close(&a.get(1).unwrap(), &[12, 16, 20].map(|at| f64::from(numbers(1, 24)[at])));
    assert_eq!(b.dims(), [2, 9]);
    let again = candle.join(&a, 1, &b, 3).unwrap();
    assert_eq!(again.to_vec2::<f32>().unwrap(), x.to_vec2::<f32>().unwrap());
}

#[test]
fn one_factor_serves_all_rows() {
    let mut candle = Candle::on(device());
    let x = array(&[1.0, 2.0, 3.0, 4.0], 2);
    check_close(&candle.scale(x.clone(), &[2.0]).unwrap(), &[2.0, 4.0, 6.0, 8.0]);
    check_close(&candle.scale(x, &[2.0, 3.0]).unwrap(), &[2.0, 4.0, 9.0, 12.0]);
}

/// The activation of one gate, for `up` = 1.
fn activated(activation: Activation, gate: f64, up: f64) -> f64 {
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    match activation {
        Activation::Silu => gate * sigmoid(gate) * up,
        Activation::GeluTanh => {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (gate + 0.044715 * gate.powi(3));
            0.5 * gate * (1.0 + inner.tanh()) * up
        }
        Activation::Sigmoid => sigmoid(gate) * up,
        Activation::ClampedSwiglu => {
            let gate = gate.min(7.0);
            gate * sigmoid(1.702 * gate) * (1.0 + up.clamp(-7.0, 7.0))
        }
    }
}

#[test]
fn activations_are_their_formulas() {
    let mut candle = Candle::on(device());
    let pairs = [(-9.0, 8.0), (-1.0, 0.5), (0.0, -8.0), (0.3, -0.5), (2.0, 1.0), (9.0, -0.25)];
    let (gate, up) = (pairs.map(|pair| pair.0 as f32), pairs.map(|pair| pair.1 as f32));
    let all = [Activation::Silu, Activation::GeluTanh, Activation::Sigmoid, Activation::ClampedSwiglu];
    for activation in all {
        let y = candle.gated(&array(&gate, 2), array(&up, 2), activation).unwrap();
        check_close(&y, &pairs.map(|(gate, up)| activated(activation, gate, up)));
    }
    // One gate per row.
    let y = candle.gated(&array(&[0.5, -2.0], 2), array(&up, 2), Activation::Sigmoid).unwrap();
    let expected: Vec<f64> = (0..6)
        .map(|at| activated(Activation::Sigmoid, if at < 3 { 0.5 } else { -2.0 }, pairs[at].1))
        .collect();
    check_close(&y, &expected);
}

#[test]
fn types_that_candle_lacks_are_widened() {
    // A scale of 2, then the sixteen 4-bit codes, each in the low and in the high half of a byte.
    let block: Vec<u8> = std::iter::once(128).chain((0..16).map(|code| code << 4 | code)).collect();
    let rows = [block.clone(), vec![0; 17], block].concat();
    let half = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0].map(|number| 2.0 * number);
    let row: Vec<f64> = [half, half.map(|number| -number)].concat().repeat(2);
    let mut candle = Candle::on(device());
    let matrix = candle.matrix(data(TensorType::MXFP4, 32, 3, rows), TensorType::MXFP4, 3, 32);
    let matrix = matrix.unwrap().unwrap();
    check_close(&candle.embed(&matrix, &[2]).unwrap(), &row);
    assert!(candle.embed(&matrix, &[3]).is_err());
    // Values that eight bits represent exactly, since a GPU rounds activations to them.
    let x: Vec<f32> = (0..32).map(|at| (at * 67 % 255 - 127) as f32 / 127.0).collect();
    assert!(x.contains(&-1.0));
    let product: f64 = x.iter().zip(&row).map(|(x, w)| f64::from(*x) * w).sum();
    check_close(&candle.matmul(&array(&x, 1), &matrix).unwrap().narrow(1, 0, 1).unwrap(), &[product]);
}

/// Attention of position `row` to positions `from..=row`, for one head.
fn attended(
    q: &[f32],
    k: &dyn Fn(usize) -> Vec<f32>,
    v: &dyn Fn(usize) -> Vec<f32>,
    seen: std::ops::RangeInclusive<usize>,
    scale: f64,
    sink: Option<f32>,
) -> Vec<f64> {
    let dot = |k: Vec<f32>| q.iter().zip(&k).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    let masses: Vec<f64> = seen.clone().map(|at| (scale * dot(k(at))).exp()).collect();
    let total = masses.iter().sum::<f64>() + sink.map_or(0.0, |sink| f64::from(sink).exp());
    let mut mixed = vec![0.0; v(*seen.start()).len()];
    for (at, mass) in seen.zip(&masses) {
        for (mixed, v) in mixed.iter_mut().zip(v(at)) {
            *mixed += mass / total * f64::from(v);
        }
    }
    mixed
}

/// Two sequences, fed in uneven pieces, in non-adjacent blocks.
fn check_attention(shape: AttentionShape, with_sinks: bool) {
    const TOKENS: usize = 11;
    let mut candle = Candle::on(device());
    let mut kv = candle.kv(Layout { blocks: 8, block_tokens: 4 }, &shape, KvType::F32).unwrap();
    let AttentionShape { heads, kv_heads, key_width, value_width, .. } = shape;
    let sinks = with_sinks.then(|| numbers(9, heads));
    let sink_vector = sinks.as_deref().map(vector);
    let q: Vec<Vec<f32>> = (0..2).map(|s| numbers(10 + s, TOKENS * heads * key_width)).collect();
    let k: Vec<Vec<f32>> = (0..2).map(|s| numbers(20 + s, TOKENS * kv_heads * key_width)).collect();
    let v: Vec<Vec<f32>> = (0..2).map(|s| numbers(30 + s, TOKENS * kv_heads * value_width)).collect();
    let blocks = [[5, 1, 2], [0, 7, 3]];
    for (first, second) in [(0..3, 0..1), (3..4, 1..2), (4..9, 2..9), (9..11, 9..11)] {
        let parts = [first, second];
        let spans = (0..2).map(|s| {
            let mut span = span(parts[s].len(), parts[s].start, &blocks[s], 0);
            // Blocks entirely before the window no longer belong to this sequence.
            if let Some(window) = shape.window {
                let before = (parts[s].start + 1).saturating_sub(window) / 4;
                span.windowed[..before].fill(u32::MAX);
            }
            span
        });
        let step = step(spans.collect());
        let rows = |all: &[Vec<f32>]| {
            let part = |s: usize| {
                let width = all[s].len() / TOKENS;
                &all[s][parts[s].start * width..parts[s].end * width]
            };
            array(&[part(0), part(1)].concat(), step.tokens.len())
        };
        let (qs, ks, vs) = (rows(&q), rows(&k), rows(&v));
        let queries = Queries {
            q: &qs,
            k: Some(&ks),
            v: (!shape.values_in_keys).then_some(&vs),
            sinks: sink_vector.as_ref(),
        };
        let y = candle.append_and_attend(queries, &step, &mut kv, &shape).unwrap();
        let mut expected = Vec::new();
        for (s, part) in parts.iter().enumerate() {
            for position in part.clone() {
                let from = match shape.window {
                    Some(window) if shape.chunked => position - position % window,
                    window => window.map_or(0, |window| (position + 1).saturating_sub(window)),
                };
                for head in 0..heads {
                    let group = head / (heads / kv_heads);
                    let key = |at: usize| k[s][(at * kv_heads + group) * key_width..][..key_width].to_vec();
                    let value = |at: usize| match shape.values_in_keys {
                        true => key(at)[..value_width].to_vec(),
                        false => v[s][(at * kv_heads + group) * value_width..][..value_width].to_vec(),
                    };
                    let query = &q[s][(position * heads + head) * key_width..][..key_width];
                    let sink = sinks.as_ref().map(|sinks| sinks[head]);
                    let scale = f64::from(shape.scale);
                    expected.extend(attended(query, &key, &value, from..=position, scale, sink));
                }
            }
        }
        check_close(&y, &expected);
    }
}

#[test]
fn attention_sees_what_it_should() {
    let shape = AttentionShape {
        heads: 4,
        kv_heads: 2,
        key_width: 6,
        value_width: 3,
        values_in_keys: false,
        scale: 0.7,
        softcap: None,
        window: None,
        chunked: false,
    };
    for window in [None, Some(1), Some(3), Some(4), Some(6)] {
        for with_sinks in [false, true] {
            for chunked in [false, true] {
                check_attention(AttentionShape { window, chunked, ..shape }, with_sinks);
            }
        }
    }
    check_attention(AttentionShape { kv_heads: 1, values_in_keys: true, ..shape }, false);
}

/// Compares each way of preparing heads, which is one launch if a GPU has a kernel for it, with
/// separate ops.
#[test]
fn heads_are_made_ready_and_attend() {
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
    let layout = Layout { blocks: 4, block_tokens: 4 };
    let step = step(vec![span(5, 3, &[2, 0], 0), span(1, 0, &[3], 0)]);
    let [q, k, v] = [(1, 128), (2, 64), (3, 64)].map(|(seed, width)| array(&numbers(seed, 6 * width), 6));
    let weights = [32, 128, 64].map(|width| vector(&numbers(width, width)));
    let [head, of_q, of_k] = &weights;
    for (pairing, half, norms, factors, odd) in [
        (Pairing::Half, 16, [Some((head, 1e-6)); 2], vec![], false),
        (Pairing::Adjacent, 8, [None, Some((head, 1e-5))], vec![1.0, 2.0, 1.0, 1.5, 1.0, 0.5], false),
        (Pairing::Half, 8, [Some((of_q, 1e-6)), Some((of_k, 1e-6))], vec![], false),
        // Normalized after the rotation, or not rotated at all.
        (Pairing::Half, 16, [Some((head, 1e-6)); 2], vec![], true),
        (Pairing::Adjacent, 0, [Some((head, 1e-6)); 2], vec![], false),
    ] {
        let mut candle = Candle::on(device());
        let angles = numbers(4, 6 * half.max(1));
        let (cos, sin) = angles.iter().map(|x| (x.cos(), x.sin())).unzip();
        let angles = candle.angles(cos, sin, 6).unwrap();
        let angles = Some(&angles).filter(|_| half > 0);
        let [mut together, mut apart] = [(); 2].map(|()| candle.kv(layout, &shape, KvType::F32).unwrap());
        let heads = || Heads {
            q: q.clone(),
            k: k.clone(),
            v: v.clone(),
            sinks: None,
            norms,
            norms_last: odd,
            angles,
            pairing,
            factors: factors.clone(),
        };
        let y = candle.prepare_and_attend(heads(), &step, &mut together, &shape).unwrap();
        let expected =
            crate::backend::prepare_by_parts(&mut candle, heads(), &step, &mut apart, &shape).unwrap();
        let expected: Vec<f32> = expected.flatten_all().unwrap().to_vec1().unwrap();
        check_close(&y, &expected.into_iter().map(f64::from).collect::<Vec<_>>());
    }
}

#[test]
fn a_sum_and_its_norm_are_those_of_the_ops() {
    let mut candle = Candle::on(device());
    let [x, y] = [1, 2].map(|seed| array(&numbers(seed, 3 * 40), 3));
    let weight = vector(&numbers(3, 40));
    let (sum, normed) = candle.add_norm(x.clone(), &y, &weight, 1e-6).unwrap();
    let wanted = candle.add(x, &y).unwrap();
    let numbers = |x: &Tensor| -> Vec<f64> {
        x.flatten_all().unwrap().to_vec1::<f32>().unwrap().into_iter().map(f64::from).collect()
    };
    check_close(&sum, &numbers(&wanted));
    check_close(&normed, &numbers(&candle.norm(&wanted, &weight, 1e-6).unwrap()));
}

/// If a backend returns the top k, they equal those of all numbers.
#[test]
fn the_top_k_are_found_on_the_device() {
    let mut candle = Candle::on(device());
    let logits: Vec<f32> = numbers(5, 3 * 1000).iter().map(|x| (x * 50.0).round()).collect();
    let x = array(&logits, 3);
    let mask: Vec<u32> = numbers(6, 31).iter().map(|x| x.to_bits()).collect();
    let Some(found) = candle.top_k(&x, 1, 40, &mask).unwrap() else {
        println!("skipped: this device has no such kernel");
        return;
    };
    let set = |at: &u32| mask.get(*at as usize / 32).is_some_and(|word| word >> (at % 32) & 1 == 1);
    let mut wanted: Vec<(f32, u32)> =
        (0..1000).filter(set).map(|at| (logits[1000 + at as usize], at)).collect();
    wanted.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    wanted.truncate(40);
    assert_eq!(found, wanted);
}

#[test]
fn experts_are_weighed_and_summed() {
    let (count, width, hidden, used) = (5, 3, 4, 2);
    let mut candle = Candle::on(device());
    let stack = |candle: &Candle, seed, out: usize, width: usize, rows: std::ops::Range<usize>| {
        let data = data(TensorType::F32, width, count * out, bytes(&numbers(seed, count * out * width)));
        candle.stack(data, TensorType::F32, StackShape { count, out, width, rows }).unwrap().unwrap()
    };
    // Gate and up are the two halves of one tensor.
    let fused = numbers(1, count * 2 * hidden * width);
    let down = numbers(2, count * width * hidden);
    let biases = [3, 4, 5].map(|seed| numbers(seed, count * hidden.max(width)));
    let stacks = ExpertStacks {
        gate: stack(&candle, 1, 2 * hidden, width, 0..hidden),
        up: Some(stack(&candle, 1, 2 * hidden, width, hidden..2 * hidden)),
        down: stack(&candle, 2, width, hidden, 0..width),
        gate_bias: Some(vector(&biases[0][..count * hidden])),
        up_bias: Some(vector(&biases[1][..count * hidden])),
        down_bias: Some(vector(&biases[2][..count * width])),
        activation: Activation::ClampedSwiglu,
    };
    let x = numbers(6, 3 * width);
    // The second expert of the first row is selected by its bias rather than its logit.
    let logits = [[-1.0, 0.5, -2.0, -3.0, 0.9], [0.2, 0.8, -0.5, 0.1, -0.7], [1.0, -0.2, -0.4, 0.3, 0.6]];
    let bias = [0.0, 0.3, -0.1, 0.1, 0.0];
    let router = Router { score: Score::Sigmoid, ..Router::default() };
    let scales = [1.0, 0.5, 3.0, 2.0, 1.25];
    let routing = Routing {
        count,
        used,
        router,
        groups: None,
        bias: Some(vector(&bias)),
        scale: 1.5,
        scales: Some(vector(&scales)),
    };
    let routed = routing.route(logits.as_flattened(), &bias, &scales);
    assert_eq!(routed.experts, [1, 4, 1, 3, 1, 0]);
    let of = |logits: &[f32]| array(logits, logits.len() / count);
    let y = candle
        .experts(&array(&x, 3), &of(logits.as_flattened()), &routing.by_ref(), &stacks.by_ref())
        .unwrap();
    let mut expected = vec![0.0; 3 * width];
    let row_of = |weights: &[f32], row: usize, x: &[f64], bias: f32| {
        let row = &weights[row * x.len()..][..x.len()];
        row.iter().zip(x).map(|(w, x)| f64::from(*w) * x).sum::<f64>() + f64::from(bias)
    };
    for (place, (&expert, &weight)) in routed.experts.iter().zip(&routed.weights).enumerate() {
        let (row, expert) = (place / used, expert as usize);
        let x: Vec<f64> = x[row * width..][..width].iter().map(|x| f64::from(*x)).collect();
        let inner: Vec<f64> = (0..hidden)
            .map(|at| {
                let bias = expert * hidden + at;
                let gate = row_of(&fused, expert * 2 * hidden + at, &x, biases[0][bias]);
                let up = row_of(&fused, (expert * 2 + 1) * hidden + at, &x, biases[1][bias]);
                activated(Activation::ClampedSwiglu, gate, up)
            })
            .collect();
        for at in 0..width {
            let bias = biases[2][expert * width + at];
            expected[row * width + at] +=
                f64::from(weight) * row_of(&down, expert * width + at, &inner, bias);
        }
    }
    check_close(&y, &expected);
    // Gate and up as one stack.
    let pairs = biases[0].chunks_exact(hidden).zip(biases[1].chunks_exact(hidden)).take(count);
    let joined = ExpertStacks {
        gate: stack(&candle, 1, 2 * hidden, width, 0..2 * hidden),
        up: None,
        gate_bias: Some(vector(&pairs.flat_map(|(gate, up)| [gate, up].concat()).collect::<Vec<_>>())),
        up_bias: None,
        ..stacks
    };
    let y = candle
        .experts(&array(&x, 3), &of(logits.as_flattened()), &routing.by_ref(), &joined.by_ref())
        .unwrap();
    check_close(&y, &expected);
    // A row gives the same result alone as with other rows.
    let x = array(&x[width..2 * width], 1);
    let alone = candle.experts(&x, &of(&logits[1]), &routing.by_ref(), &joined.by_ref()).unwrap();
    check_close(&alone, &expected[width..2 * width]);
}

#[test]
fn each_matrix_of_a_stack_has_its_own_part_of_a_row() {
    let mut candle = Candle::on(device());
    let weights = numbers(1, 2 * 3 * 4);
    let data = data(TensorType::F32, 4, 6, bytes(&weights));
    let shape = StackShape { count: 2, out: 3, width: 4, rows: 1..3 };
    let stack = candle.stack(data, TensorType::F32, shape).unwrap().unwrap();
    let x = numbers(2, 2 * 8);
    let y = candle.stacked(&array(&x, 2), &stack).unwrap();
    let mut expected = Vec::new();
    for row in 0..2 {
        for matrix in 0..2 {
            for out in 1..3 {
                let w = &weights[(matrix * 3 + out) * 4..][..4];
                let x = &x[row * 8 + matrix * 4..][..4];
                expected.push(w.iter().zip(x).map(|(w, x)| f64::from(*w) * f64::from(*x)).sum());
            }
        }
    }
    check_close(&y, &expected);
}

/// Files of the prefix cache have one format: candle loads and saves the bytes of the native
/// backend, and vice versa.
#[test]
fn what_is_kept_has_the_native_form() {
    use crate::backend::native::Native;
    let shape = AttentionShape {
        heads: 2,
        kv_heads: 2,
        key_width: 32,
        value_width: 16,
        values_in_keys: false,
        scale: 1.0,
        softcap: None,
        window: None,
        chunked: false,
    };
    let layout = Layout { blocks: 3, block_tokens: 4 };
    for kind in [KvType::F32, KvType::F16, KvType::Q8_0] {
        let (mut candle, mut native) = (Candle::on(device()), Native::with_threads(1));
        let (mut here, mut there) =
            (candle.kv(layout, &shape, kind).unwrap(), native.kv(layout, &shape, kind).unwrap());
        let (q, k, v) = (numbers(1, 7 * 64), numbers(2, 7 * 64), numbers(3, 7 * 32));
        let step = step(vec![span(7, 0, &[2, 0], 0)]);
        let [x, y, z] = [&q, &k, &v].map(|numbers| array(numbers, 7));
        let queries = Queries { q: &x, k: Some(&y), v: Some(&z), sinks: None };
        candle.append_and_attend(queries, &step, &mut here, &shape).unwrap();
        let [x, y, z] = [q, k, v].map(|numbers| native.upload(numbers, 7).unwrap());
        let queries = Queries { q: &x, k: Some(&y), v: Some(&z), sinks: None };
        native.append_and_attend(queries, &step, &mut there, &shape).unwrap();
        let (mut own, mut others) = (Vec::new(), Vec::new());
        candle.save_rows(&here, 8, 4, &mut own).unwrap();
        native.save_rows(&there, 8, 4, &mut others).unwrap();
        assert_eq!(own.len(), others.len(), "{kind:?}");
        // An 8-bit code may be rounded differently; everything else is equal.
        let far =
            own.iter().zip(&others).filter(|(a, b)| a.wrapping_sub(**b).min(b.wrapping_sub(**a)) > 1).count();
        assert_eq!(far, 0, "{kind:?}");
        assert!(kind == KvType::Q8_0 || own == others, "{kind:?}");
        candle.load_rows(&mut here, 1, 4, &others).unwrap();
        let mut again = Vec::new();
        candle.save_rows(&here, 1, 4, &mut again).unwrap();
        assert!(again == others, "{kind:?}");
    }
}

#[test]
fn recurrent_state_has_the_native_form() {
    use crate::backend::native::Native;
    let shape = DeltaShape {
        key_heads: 2,
        value_heads: 4,
        grouped: false,
        key_width: 16,
        value_width: 32,
        kernel: 4,
        epsilon: 1e-6,
    };
    let (mut candle, mut native) = (Candle::on(device()), Native::with_threads(1));
    let state = StateShape::from(&shape);
    let (mut here, mut there) = (candle.state(2, &state).unwrap(), native.state(2, &state).unwrap());
    let (qkv, beta, alpha) = (numbers(1, 5 * shape.channels()), numbers(2, 5 * 4), numbers(3, 5 * 4));
    let (conv, dt) = (numbers(4, shape.channels() * shape.kernel), numbers(5, 4));
    let a: Vec<f32> = numbers(6, 4).iter().map(|number| -number.abs()).collect();
    let step = step(vec![span(5, 0, &[0], 1)]);
    let [x, y, z] = [&qkv, &beta, &alpha].map(|numbers| array(numbers, 5));
    let weights = DeltaWeights { conv: vector(&conv), a: vector(&a), dt: vector(&dt) };
    let input = DeltaInput { qkv: &x, beta: &y, alpha: &z };
    candle.delta(input, &weights.by_ref(), &step, &mut here, &shape).unwrap();
    let [x, y, z] = [qkv, beta, alpha].map(|numbers| native.upload(numbers, 5).unwrap());
    let weights = DeltaWeights { conv, a, dt };
    let input = DeltaInput { qkv: &x, beta: &y, alpha: &z };
    native.delta(input, &weights.by_ref(), &step, &mut there, &shape).unwrap();
    let (mut own, mut others) = (Vec::new(), Vec::new());
    candle.save_state(&here, SlotId(1), &mut own).unwrap();
    native.save_state(&there, SlotId(1), &mut others).unwrap();
    let floats = |bytes: &[u8]| -> Vec<f64> {
        bytes.as_chunks().0.iter().map(|four| f64::from(f32::from_le_bytes(*four))).collect()
    };
    let (found, expected) = (floats(&own), floats(&others));
    assert_eq!(found.len(), expected.len());
    assert!(found.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-5));
    candle.load_state(&mut here, SlotId(0), &others).unwrap();
    let mut again = Vec::new();
    candle.save_state(&here, SlotId(0), &mut again).unwrap();
    assert!(again == others);
}
