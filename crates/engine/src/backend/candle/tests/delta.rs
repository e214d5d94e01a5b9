//! The gated delta rule against its formula.

use super::*;

/// Applies the rule to one sequence from its beginning.
/// `[n, value_heads * value_width]`
fn ruled(qkv: &[f32], beta: &[f32], alpha: &[f32], weights: &[Vec<f32>; 3], shape: &DeltaShape) -> Vec<f64> {
    let DeltaShape { key_heads, value_heads, key_width, value_width, kernel, .. } = *shape;
    let channels = shape.channels();
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    let mut known = vec![vec![vec![0.0; value_width]; key_width]; value_heads];
    let mut y = Vec::new();
    for row in 0..qkv.len() / channels {
        let convolved: Vec<f64> = (0..channels)
            .map(|channel| {
                let taps = (0..kernel).filter(|tap| row + tap + 1 >= kernel).map(|tap| {
                    let x = qkv[(row + tap + 1 - kernel) * channels + channel];
                    f64::from(weights[0][channel * kernel + tap]) * f64::from(x)
                });
                let sum: f64 = taps.sum();
                sum * sigmoid(sum)
            })
            .collect();
        let unit = |start: usize| {
            let x = &convolved[start..start + key_width];
            let length = (x.iter().map(|x| x * x).sum::<f64>() + f64::from(shape.epsilon)).sqrt();
            x.iter().map(|x| x / length).collect::<Vec<f64>>()
        };
        for (head, known) in known.iter_mut().enumerate() {
            let at = row * value_heads + head;
            let q = unit(shape.key_head(head) * key_width);
            let k = unit((key_heads + shape.key_head(head)) * key_width);
            let v = &convolved[2 * key_heads * key_width + head * value_width..][..value_width];
            let alpha = f64::from(alpha[at]) + f64::from(weights[2][head]);
            let decay = (f64::from(weights[1][head]) * alpha.exp().ln_1p()).exp();
            known.iter_mut().flatten().for_each(|number| *number *= decay);
            for (column, v) in v.iter().enumerate() {
                let old: f64 = (0..key_width).map(|i| k[i] * known[i][column]).sum();
                let new = sigmoid(f64::from(beta[at])) * (v - old);
                (0..key_width).for_each(|i| known[i][column] += k[i] * new);
                let read: f64 = (0..key_width).map(|i| q[i] * known[i][column]).sum();
                y.push(read / (key_width as f64).sqrt());
            }
        }
    }
    y
}

#[test]
fn the_delta_rule_goes_on_from_its_slot() {
    goes_on_from_its_slot(false);
    goes_on_from_its_slot(true);
}

fn goes_on_from_its_slot(grouped: bool) {
    const TOKENS: usize = 9;
    let shape = DeltaShape {
        key_heads: 2,
        value_heads: 4,
        grouped,
        key_width: 3,
        value_width: 5,
        kernel: 4,
        epsilon: 1e-6,
    };
    let mut candle = Candle::on(device());
    let mut state = candle.state(3, &(&shape).into()).unwrap();
    let negative = numbers(2, 4).iter().map(|number| -number.abs()).collect();
    let host = [numbers(1, shape.channels() * shape.kernel), negative, numbers(3, 4)];
    let weights = DeltaWeights { conv: vector(&host[0]), a: vector(&host[1]), dt: vector(&host[2]) };
    // The third sequence reuses the first one's slot.
    let parts = [
        vec![(0, 0..2, 2), (1, 0..4, 0)],
        vec![(1, 4..5, 0), (0, 2..9, 2)],
        vec![(2, 0..8, 2), (1, 5..9, 0)],
        vec![(2, 8..9, 2)],
    ];
    let inputs: Vec<[Vec<f32>; 3]> = (0..3)
        .map(|s| {
            let long = |seed: usize, width: usize| {
                numbers(10 * s + seed, TOKENS * width).iter().map(|x| 3.0 * x).collect()
            };
            [long(4, shape.channels()), long(5, 4), long(6, 4)]
        })
        .collect();
    for parts in parts {
        let spans = parts.iter().map(|(_, rows, slot)| span(rows.len(), rows.start, &[], *slot));
        let step = step(spans.collect());
        let rows = |which: usize| {
            let part = |(s, rows, _): &(usize, std::ops::Range<usize>, u32)| {
                let width = inputs[*s][which].len() / TOKENS;
                inputs[*s][which][rows.start * width..rows.end * width].to_vec()
            };
            array(&parts.iter().flat_map(part).collect::<Vec<f32>>(), step.tokens.len())
        };
        let (qkv, beta, alpha) = (rows(0), rows(1), rows(2));
        let input = DeltaInput { qkv: &qkv, beta: &beta, alpha: &alpha };
        let y = candle.delta(input, &weights.by_ref(), &step, &mut state, &shape).unwrap();
        let expected = parts.iter().flat_map(|(s, rows, _)| {
            let [qkv, beta, alpha] = &inputs[*s];
            let all = ruled(qkv, beta, alpha, &host, &shape);
            let width = all.len() / TOKENS;
            all[rows.start * width..rows.end * width].to_vec()
        });
        check_close(&y, &expected.collect::<Vec<f64>>());
    }
}
