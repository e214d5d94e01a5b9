use super::*;
use crate::testing::{assert_close, assert_same, cpus, noise};

/// One sequence in one layer.
struct Case {
    shape: ScanShape,
    rows: usize,
    xbc: Vec<f32>,
    dt: Vec<f32>,
    a: Vec<f32>,
    d: Vec<f32>,
    bias: Vec<f32>,
    state: Vec<f32>,
}

impl Case {
    fn new(heads: usize, groups: usize, (width, state): (usize, usize), rows: usize, spread: f32) -> Case {
        let shape = ScanShape { heads, groups, width, state, kernel: 1 };
        Case {
            shape,
            rows,
            xbc: noise(1, rows * shape.channels()),
            dt: noise(2, rows * heads).iter().map(|x| x * spread).collect(),
            a: noise(3, heads).iter().map(|x| -1.0 - x).collect(),
            d: noise(4, heads),
            bias: noise(5, heads),
            state: noise(6, heads * state * width),
        }
    }

    /// The rows' results and the final state, with the sequence divided into calls of these
    /// lengths.
    fn run(&self, cpu: &Cpu, calls: &[usize]) -> (Vec<f32>, Vec<f32>) {
        let (heads, inner, channels) = (self.shape.heads, self.shape.inner(), self.shape.channels());
        let mut state = self.state.clone();
        let mut y = vec![f32::NAN; self.rows * inner];
        let mut first = 0;
        for &rows in calls {
            let range = |width: usize| first * width..(first + rows) * width;
            let (xbc, dt) = (&self.xbc[range(channels)], &self.dt[range(heads)]);
            let y = &mut y[range(inner)];
            scan(cpu, &self.shape, xbc, dt, &self.a, &self.d, &self.bias, &mut state, y);
            first += rows;
        }
        assert_eq!(first, self.rows);
        (y, state)
    }

    /// The results according to the formulas.
    fn exact(&self) -> (Vec<f64>, Vec<f64>) {
        let ScanShape { heads, groups, width, state: numbers, .. } = self.shape;
        let wide = |x: &[f32]| -> Vec<f64> { x.iter().map(|&x| f64::from(x)).collect() };
        let (a, d, bias, mut state) = (wide(&self.a), wide(&self.d), wide(&self.bias), wide(&self.state));
        let mut y = Vec::new();
        for row in 0..self.rows {
            let all = wide(&self.xbc[row * self.shape.channels()..][..self.shape.channels()]);
            for (head, state) in state.chunks_exact_mut(numbers * width).enumerate() {
                let x = &all[head * width..][..width];
                let of_group = |which: usize| {
                    let group = head / (heads / groups);
                    &all[heads * width + (which * groups + group) * numbers..][..numbers]
                };
                let (b, c) = (of_group(0), of_group(1));
                let raw = f64::from(self.dt[row * heads + head]) + bias[head];
                let step = if raw > 20.0 { raw } else { raw.exp().ln_1p() };
                for (i, state) in state.chunks_exact_mut(width).enumerate() {
                    for (state, x) in state.iter_mut().zip(x) {
                        *state = *state * (step * a[head]).exp() + step * x * b[i];
                    }
                }
                y.extend((0..width).map(|p| {
                    (0..numbers).map(|i| c[i] * state[i * width + p]).sum::<f64>() + d[head] * x[p]
                }));
            }
        }
        (y, state)
    }

    /// Checks that results are close to the formulas, and bitwise equal on every CPU and however
    /// the sequence is divided.
    fn check(&self, tolerance: f64) {
        let (y, state) = self.exact();
        let mut first: Option<(Vec<f32>, Vec<f32>)> = None;
        for cpu in cpus() {
            for step in [self.rows, 1, 3] {
                let calls: Vec<usize> =
                    (0..self.rows).step_by(step).map(|at| step.min(self.rows - at)).collect();
                let found = self.run(&cpu, &calls);
                let first = first.get_or_insert_with(|| found.clone());
                let what = format!("{:?}, {} rows by {step} on {cpu:?}", self.shape, self.rows);
                assert_same(&first.0, &found.0, &what);
                assert_same(&first.1, &found.1, &what);
            }
        }
        let (found_y, found_state) = first.unwrap();
        assert_close(&found_y, &y, tolerance);
        assert_close(&found_state, &state, tolerance);
    }
}

#[test]
fn shapes_of_models_and_odd_ones() {
    for rows in [1, 2, 3, 5, 31, 33, 70] {
        Case::new(6, 1, (16, 16), rows, 2.0).check(2e-5);
        Case::new(8, 2, (10, 8), rows, 2.0).check(2e-5);
        Case::new(4, 4, (37, 5), rows, 2.0).check(2e-5);
    }
    for rows in [1, 40] {
        Case::new(2, 1, (64, 128), rows, 2.0).check(2e-5);
        Case::new(2, 2, (80, 128), rows, 2.0).check(2e-5);
    }
}

#[test]
fn a_head_reads_its_group() {
    let case = Case::new(4, 2, (16, 8), 3, 1.0);
    let (y, _) = case.run(&cpus()[0], &[3]);
    // Without the second group's C, and without D, heads 2 and 3 give zeros.
    let mut without = Case::new(4, 2, (16, 8), 3, 1.0);
    let channels = without.shape.channels();
    for row in without.xbc.chunks_exact_mut(channels) {
        row[channels - 8..].fill(0.0);
    }
    without.d[2..].fill(0.0);
    let (z, _) = without.run(&cpus()[0], &[3]);
    for (at, (y, z)) in y.chunks_exact(16).zip(z.chunks_exact(16)).enumerate() {
        if at % 4 < 2 {
            assert_same(y, z, "the first group");
        } else {
            assert!(z.iter().all(|&z| z == 0.0), "{at}: {z:?}");
        }
    }
}

#[test]
fn extreme_steps_decay_and_hold() {
    Case::new(2, 1, (16, 16), 40, 30.0).check(1e-4);
    // Nothing decays and nothing is written.
    let mut still = Case::new(1, 1, (16, 8), 40, 1.0);
    still.dt.fill(-1e4);
    assert_same(&still.state, &still.run(&cpus()[0], &[40]).1, "still");
    // The past is forgotten at once.
    let mut forgetful = Case::new(1, 1, (16, 8), 40, 1.0);
    forgetful.dt.fill(1e3);
    forgetful.a.fill(-1.0);
    let (y, state) = forgetful.run(&cpus()[0], &[40]);
    forgetful.state.fill(0.0);
    let (z, other) = forgetful.run(&cpus()[0], &[40]);
    assert_same(&y, &z, "forgotten");
    assert_same(&state, &other, "forgotten state");
}
