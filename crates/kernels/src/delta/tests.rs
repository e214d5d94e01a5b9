use super::*;
use crate::testing::{assert_close, assert_same, cpus, noise};

/// One sequence in one layer.
struct Case {
    shape: DeltaShape,
    rows: usize,
    qkv: Vec<f32>,
    beta: Vec<f32>,
    alpha: Vec<f32>,
    a: Vec<f32>,
    dt: Vec<f32>,
    state: Vec<f32>,
}

impl Case {
    /// A case whose raw gate values are within `spread` of zero.
    fn new(key_heads: usize, value_heads: usize, widths: (usize, usize), rows: usize, spread: f32) -> Case {
        let (key_width, value_width) = widths;
        let grouped = false;
        let shape =
            DeltaShape { key_heads, value_heads, grouped, key_width, value_width, kernel: 1, epsilon: 1e-6 };
        let gates = |seed| noise(seed, rows * value_heads).iter().map(|x| x * spread).collect();
        Case {
            shape,
            rows,
            qkv: noise(1, rows * shape.channels()),
            beta: gates(2),
            alpha: gates(3),
            a: noise(4, value_heads).iter().map(|x| -1.0 - x).collect(),
            dt: noise(5, value_heads),
            state: noise(6, value_heads * key_width * value_width),
        }
    }

    /// The rows' results and the final state, with the sequence divided into calls of these
    /// lengths.
    fn run(&self, cpu: &Cpu, form: DeltaForm, calls: &[usize]) -> (Vec<f32>, Vec<f32>) {
        let heads = self.shape.value_heads;
        let mut state = self.state.clone();
        let mut y = vec![f32::NAN; self.rows * heads * self.shape.value_width];
        let mut first = 0;
        for &rows in calls {
            let range = |width: usize| first * width..(first + rows) * width;
            delta(
                cpu,
                &self.shape,
                form,
                &self.qkv[range(self.shape.channels())],
                &self.beta[range(heads)],
                &self.alpha[range(heads)],
                &self.a,
                &self.dt,
                &mut state,
                &mut y[range(heads * self.shape.value_width)],
            );
            first += rows;
        }
        assert_eq!(first, self.rows);
        (y, state)
    }

    /// The results according to the formulas.
    fn exact(&self) -> (Vec<f64>, Vec<f64>) {
        let DeltaShape { key_heads, value_heads, key_width, value_width, epsilon, .. } = self.shape;
        let wide = |x: &[f32]| -> Vec<f64> { x.iter().map(|&x| f64::from(x)).collect() };
        let mut state = wide(&self.state);
        let mut y = Vec::new();
        for row in 0..self.rows {
            let qkv = wide(&self.qkv[row * self.shape.channels()..][..self.shape.channels()]);
            let (q, kv) = qkv.split_at(key_heads * key_width);
            let (k, v) = kv.split_at(key_heads * key_width);
            for (head, state) in state.chunks_exact_mut(key_width * value_width).enumerate() {
                let unit = |x: &[f64]| -> Vec<f64> {
                    let x = &x[self.shape.key_head(head) * key_width..][..key_width];
                    let length = (x.iter().map(|x| x * x).sum::<f64>() + f64::from(epsilon)).sqrt();
                    x.iter().map(|x| x / length).collect()
                };
                let (q, k) = (unit(q), unit(k));
                let rate = 1.0 / (1.0 + (-f64::from(self.beta[row * value_heads + head])).exp());
                let x = f64::from(self.alpha[row * value_heads + head] + self.dt[head]);
                let g = f64::from(self.a[head]) * if x > 20.0 { x } else { x.exp().ln_1p() };
                state.iter_mut().for_each(|state| *state *= g.exp());
                for c in 0..value_width {
                    let predicted: f64 = (0..key_width).map(|i| state[i * value_width + c] * k[i]).sum();
                    let delta = rate * (v[head * value_width + c] - predicted);
                    (0..key_width).for_each(|i| state[i * value_width + c] += k[i] * delta);
                    let sum: f64 = (0..key_width).map(|i| state[i * value_width + c] * q[i]).sum();
                    y.push(sum / (key_width as f64).sqrt());
                }
            }
        }
        (y, state)
    }

    /// Checks that both forms are close to the formulas, and bitwise equal on every CPU.
    fn check(&self, tolerance: f64) {
        let (y, state) = self.exact();
        for form in [DeltaForm::Recurrent, DeltaForm::Chunked] {
            let mut first = None;
            for cpu in cpus() {
                let found = self.run(&cpu, form, &[self.rows]);
                let first = first.get_or_insert_with(|| found.clone());
                let what = format!("{:?}, {} rows, {form:?} on {cpu:?}", self.shape, self.rows);
                assert_same(&first.0, &found.0, &what);
                assert_same(&first.1, &found.1, &what);
            }
            let (found_y, found_state) = first.unwrap();
            assert_close(&found_y, &y, tolerance);
            assert_close(&found_state, &state, tolerance);
        }
    }
}

#[test]
fn both_forms_are_the_rule_for_every_length() {
    for rows in 1..=130 {
        Case::new(1, 1, (16, 16), rows, 3.0).check(1e-5);
    }
}

#[test]
fn shapes_of_models_and_odd_ones() {
    for rows in [1, 63, 64, 65, 129] {
        Case::new(2, 4, (32, 64), rows, 3.0).check(1e-5);
        Case::new(2, 6, (9, 5), rows, 3.0).check(1e-5);
        Case::new(3, 3, (24, 43), rows, 3.0).check(1e-5);
    }
    for rows in [1, 70] {
        Case::new(1, 2, (128, 128), rows, 3.0).check(1e-5);
        Case::new(1, 1, (16, 100), rows, 3.0).check(1e-5);
    }
}

#[test]
fn value_head_j_goes_with_key_head_j_mod_hk() {
    let case = Case::new(2, 4, (8, 8), 3, 1.0);
    let (y, _) = case.run(&cpus()[0], DeltaForm::Recurrent, &[3]);
    // Without key head 1, value heads 1 and 3 predict nothing, and 0 and 2 are unchanged.
    let mut without = case;
    for row in without.qkv.chunks_exact_mut(without.shape.channels()) {
        row[8..16].fill(0.0);
        row[24..32].fill(0.0);
    }
    for form in [DeltaForm::Recurrent, DeltaForm::Chunked] {
        let (z, _) = without.run(&cpus()[0], form, &[3]);
        for (row, (y, z)) in y.chunks_exact(8).zip(z.chunks_exact(8)).enumerate() {
            if row % 2 == 0 {
                let y: Vec<f64> = y.iter().map(|&y| f64::from(y)).collect();
                assert_close(z, &y, 1e-6);
            } else {
                assert!(z.iter().all(|&z| z == 0.0), "{row}: {z:?}");
            }
        }
    }
}

/// Permuting the heads permutes the results.
#[test]
fn grouped_value_heads_lie_side_by_side() {
    let (key_heads, times, width, rows) = (2, 3, 8, 5);
    let tiled = Case::new(key_heads, key_heads * times, (width, width), rows, 2.0);
    let mut grouped = Case::new(key_heads, key_heads * times, (width, width), rows, 2.0);
    grouped.shape.grouped = true;
    // Head j of the grouped order is head (j % times) * key_heads + j / times of the other order.
    let from = |j: usize| j % times * key_heads + j / times;
    let heads = key_heads * times;
    let reorder = |new: &mut [f32], old: &[f32], size: usize| {
        for j in 0..heads {
            new[j * size..][..size].copy_from_slice(&old[from(j) * size..][..size]);
        }
    };
    let keys = 2 * key_heads * width;
    let channels = tiled.shape.channels();
    for row in 0..rows {
        let values = row * channels + keys..(row + 1) * channels;
        reorder(&mut grouped.qkv[values.clone()], &tiled.qkv[values], width);
        let gates = row * heads..(row + 1) * heads;
        reorder(&mut grouped.beta[gates.clone()], &tiled.beta[gates.clone()], 1);
        reorder(&mut grouped.alpha[gates.clone()], &tiled.alpha[gates], 1);
    }
    reorder(&mut grouped.a, &tiled.a, 1);
    reorder(&mut grouped.dt, &tiled.dt, 1);
    reorder(&mut grouped.state, &tiled.state, width * width);
    for form in [DeltaForm::Recurrent, DeltaForm::Chunked] {
        let (y, state) = tiled.run(&cpus()[0], form, &[rows]);
        let (found, found_state) = grouped.run(&cpus()[0], form, &[rows]);
        let (mut expected, mut expected_state) = (y.clone(), state.clone());
        for row in 0..rows {
            let range = row * heads * width..(row + 1) * heads * width;
            reorder(&mut expected[range.clone()], &y[range], width);
        }
        reorder(&mut expected_state, &state, width * width);
        assert_same(&expected, &found, "grouped");
        assert_same(&expected_state, &found_state, "grouped state");
    }
}

#[test]
fn extreme_gates_decay_and_hold() {
    for spread in [30.0, 1e3, 1e6, 1e30] {
        for rows in [5, 64, 100] {
            Case::new(2, 2, (16, 16), rows, spread).check(2e-5);
        }
    }
    // Nothing decays and nothing is written.
    let mut still = Case::new(1, 1, (8, 8), 70, 1.0);
    still.alpha.fill(-1e4);
    still.beta.fill(-1e4);
    for form in [DeltaForm::Recurrent, DeltaForm::Chunked] {
        assert_same(&still.state, &still.run(&cpus()[0], form, &[70]).1, "still");
    }
    // The past is forgotten at once, and the last row is written in full.
    let mut forgetful = Case::new(1, 1, (8, 8), 70, 1.0);
    forgetful.alpha.fill(1e4);
    forgetful.beta.fill(1e4);
    forgetful.check(1e-5);
}

#[test]
fn a_zero_query_and_key_are_harmless() {
    let mut case = Case::new(1, 2, (16, 16), 66, 2.0);
    case.qkv.fill(0.0);
    case.check(1e-5);
}

#[test]
fn the_state_is_handed_on_from_call_to_call() {
    let case = Case::new(2, 4, (16, 24), 130, 3.0);
    let exact = case.exact();
    let (whole_y, whole_state) = case.run(&cpus()[0], DeltaForm::Recurrent, &[130]);
    for seed in 0..30 {
        let mut calls = Vec::new();
        let mut left = case.rows;
        for x in noise(seed, case.rows) {
            let most = if seed % 2 == 0 { 6.0 } else { 90.0 };
            let rows = ((x.abs() * most) as usize).min(left);
            calls.push(rows);
            left -= rows;
        }
        calls.push(left);
        let cpus = cpus();
        let cpu = &cpus[seed as usize % cpus.len()];
        let (y, state) = case.run(cpu, DeltaForm::Recurrent, &calls);
        assert_same(&whole_y, &y, &format!("{calls:?}"));
        assert_same(&whole_state, &state, &format!("{calls:?}"));
        let (y, state) = case.run(cpu, DeltaForm::Chunked, &calls);
        assert_close(&y, &exact.0, 1e-5);
        assert_close(&state, &exact.1, 1e-5);
    }
}
