//! Checks the requirements of launches, for the shapes of real models and every kernel.
//! They must not exceed the limits of compute capability 7.5, 8.0, 9.0 or 12.0.

use std::cell::RefCell;

use crate::*;

/// Records launches without computing.
#[derive(Default)]
struct Watcher {
    launches: RefCell<Vec<Launch>>,
}

/// Memory without an address.
struct Nowhere;

impl Memory for Nowhere {
    fn address(&self) -> u64 {
        1 << 40
    }
}

impl Device for Watcher {
    type Memory = Nowhere;

    fn alloc(&self, _bytes: usize) -> Result<Nowhere> {
        Ok(Nowhere)
    }

    fn upload(&self, _numbers: &[u32]) -> Result<Nowhere> {
        Ok(Nowhere)
    }

    fn launch(&self, launch: &Launch) -> Result<()> {
        if let Some(excess) = launch.excess() {
            panic!("{excess}");
        }
        self.launches.borrow_mut().push(launch.clone());
        Ok(())
    }
}

/// Name; D, F, V; H, K, key and value widths, window; experts, used, their F; delta's key and value
/// heads.
type Model = (&'static str, [usize; 3], [usize; 5], [usize; 3], [usize; 2]);

/// Sizes of published models, from their files' metadata.
/// GLM-4.7-Flash is in the absorbed form.
#[rustfmt::skip]
const MODELS: [Model; 12] = [
    ("Qwen3 0.6B",      [1024, 3072, 151_936],  [16, 8, 128, 128, 0],   [0, 0, 0],      [0, 0]),
    ("Qwen3 8B",        [4096, 12288, 151_936], [32, 8, 128, 128, 0],   [0, 0, 0],      [0, 0]),
    ("Qwen3 30B-A3B",   [2048, 768, 151_936],   [32, 4, 128, 128, 0],   [128, 8, 768],  [0, 0]),
    ("Qwen3.5 0.8B",    [1024, 3584, 248_320],  [8, 2, 256, 256, 0],    [0, 0, 0],      [16, 16]),
    ("Qwen3.5 35B-A3B", [2048, 512, 248_320],   [16, 2, 256, 256, 0],   [256, 8, 512],  [16, 32]),
    ("GLM-4.7-Flash",   [2048, 10240, 154_880], [20, 1, 576, 512, 0],   [64, 4, 1536],  [0, 0]),
    ("GPT-OSS 20B",     [2880, 2880, 201_088],  [64, 8, 64, 64, 128],   [32, 4, 2880],  [0, 0]),
    ("Gemma 3 12B",     [3840, 15360, 262_144], [16, 8, 256, 256, 1024], [0, 0, 0],     [0, 0]),
    ("Gemma 3 27B",     [5376, 21504, 262_144], [32, 16, 128, 128, 1024], [0, 0, 0],    [0, 0]),
    ("Mistral 3.2 24B", [5120, 32768, 131_072], [32, 8, 128, 128, 0],   [0, 0, 0],      [0, 0]),
    ("Phi-4 14B",       [5120, 17920, 100_352], [40, 10, 128, 128, 0],  [0, 0, 0],      [0, 0]),
    ("OLMo 2 13B",      [5120, 13824, 100_352], [40, 40, 128, 128, 0],  [0, 0, 0],      [0, 0]),
];

fn numbers(len: usize) -> Array {
    Array { address: 1 << 40, len: len as u64 }
}

/// Several sequences that decode far from their beginning, and one that prefills.
const STEPS: [&[(usize, usize)]; 5] =
    [&[(0, 1)], &[(100_000, 1); 16], &[(9, 3)], &[(0, 2048)], &[(30_000, 512), (5000, 5)]];

/// Attention shapes of no model in the list: one key head per query head, with wide values.
const OTHER_HEADS: [[usize; 5]; 2] = [[4, 4, 256, 256, 0], [4, 4, 512, 512, 0]];

fn attends(
    watcher: &Watcher,
    [heads, kv_heads, key_width, value_width, window]: [usize; 5],
    rows: &[(usize, usize)],
) {
    let blocks: Vec<u32> = (0..8192).collect();
    let spans: Vec<AttentionSpan> =
        rows.iter().map(|&(past, rows)| AttentionSpan { rows, past, blocks: &blocks }).collect();
    let shape = AttentionShape {
        heads,
        kv_heads,
        key_width,
        value_width,
        values_in_keys: key_width == 576,
        scale: 1.0,
        softcap: None,
        window: (window > 0).then_some(window),
        chunked: false,
    };
    for kind in [KvFormat::F32, KvFormat::F16, KvFormat::Q8_0] {
        let shape = AttendShape { heads: shape, block_tokens: 32, kind };
        let plan = AttendPlan::new(&shape, &spans).unwrap();
        let tables = plan.upload(watcher, &shape).unwrap();
        let kept = [KvArrays::default(); 2];
        let rows = plan.rows();
        append(watcher, kind, &tables, numbers(rows * kv_heads * key_width), kv_heads * key_width, kept[0])
            .unwrap();
        let q = numbers(rows * heads * key_width);
        let y = numbers(rows * heads * value_width);
        attend(watcher, &shape, &tables, q, Array::default(), kept, y).unwrap();
        let half = key_width / 2;
        let heads = Heads {
            heads,
            kv_heads,
            key_width,
            value_width,
            norms: [numbers(key_width); 2],
            epsilon: 1e-6,
            angles: [numbers(rows * half); 2],
            half,
            adjacent: false,
        };
        let [k, v] = [key_width, value_width].map(|width| numbers(rows * kv_heads * width));
        prepare(watcher, &heads, kind, &tables, [q, k, v], kept, q).unwrap();
    }
}

fn multiplies_all(watcher: &Watcher, out: usize, width: usize, rows: usize) {
    let fits = |format: &Format| multiplies(*format) && format.row_bytes(width).is_some();
    for format in Format::ALL.into_iter().filter(fits) {
        let w = Weights { format, bytes: numbers(1), width, out, first: 0, stack: out };
        let operands =
            Operands { x: numbers(rows * width), shared: 1, bias: numbers(0), y: numbers(rows * out) };
        matmul(watcher, &w, &operands, None).unwrap();
        widen(watcher, &w, numbers(rows), numbers(rows * width)).unwrap();
    }
}

fn uses_experts(watcher: &Watcher, width: usize, [count, used, hidden]: [usize; 3], rows: usize) {
    let router = Router { count, used, groups: (1, 1), score: Score::Softmax, normalise: true, scale: 1.0 };
    let places = rows * used;
    route(watcher, &router, numbers(rows * count), numbers(0), numbers(places), numbers(places)).unwrap();
    let tiles = numbers(max_tiles(places, count));
    bucket(watcher, count, numbers(places), numbers(places), tiles).unwrap();
    let buckets = (places > SMALL_BATCH).then_some([numbers(places), tiles]);
    let grouped = Grouped { experts: numbers(places), count, buckets };
    let w = Weights { format: Format::MXFP4, bytes: numbers(1), width, out: hidden, first: 0, stack: hidden };
    let operands =
        Operands { x: numbers(rows * width), shared: used, bias: numbers(0), y: numbers(places * hidden) };
    matmul(watcher, &w, &operands, Some(&grouped)).unwrap();
    weigh(watcher, numbers(places * width), numbers(places), used, numbers(rows * width)).unwrap();
}

fn remembers(
    watcher: &Watcher,
    [key_heads, value_heads]: [usize; 2],
    key_width: usize,
    rows: &[(usize, usize)],
) {
    let (grouped, value_width) = (false, 128);
    let shape =
        DeltaShape { key_heads, value_heads, grouped, key_width, value_width, kernel: 4, epsilon: 1e-6 };
    let spans: Vec<DeltaSpan> = (rows.iter())
        .map(|&(_, rows)| DeltaSpan {
            rows,
            before: DeltaState::default(),
            saves: vec![(rows, DeltaState::default())],
        })
        .collect();
    let count: usize = rows.iter().map(|(_, rows)| rows).sum();
    let (rate, head) = (numbers(count * value_heads), numbers(value_heads));
    let channels = shape.channels();
    let (qkv, conv) = (numbers(count * channels), numbers(channels * shape.kernel));
    let input = DeltaInput { qkv, beta: rate, alpha: rate, conv, a: head, dt: head };
    let y = numbers(count * value_heads * shape.value_width);
    for form in [DeltaForm::Recurrent, DeltaForm::Chunked] {
        delta(watcher, &shape, form, &spans, &input, y).unwrap();
    }
}

/// All launches of all models.
fn launches() -> Vec<Launch> {
    let watcher = Watcher::default();
    for (_, [width, hidden, vocabulary], attention, experts, delta) in MODELS {
        for step in STEPS {
            let rows = step.iter().map(|(_, rows)| rows).sum();
            attends(&watcher, attention, step);
            multiplies_all(&watcher, hidden, width, rows);
            multiplies_all(&watcher, width, hidden, rows);
            let [x, weight] = [rows * width, width].map(numbers);
            let quants = numbers(rows * width / BLOCK);
            add_norm(&watcher, [x; 2], weight, 1e-6, [x; 2], quants).unwrap();
            quantize(&watcher, x, width, quants).unwrap();
            let x = numbers(rows * hidden);
            let joined = numbers((2 * rows - 1) * hidden);
            let half = Rows { numbers: joined, width: hidden, step: 2 * hidden };
            gated(&watcher, [half; 2], x, numbers(rows * hidden / BLOCK), Gate::Silu).unwrap();
            if experts[0] > 0 {
                uses_experts(&watcher, width, experts, rows);
            }
            if delta[0] > 0 {
                remembers(&watcher, delta, 128, step);
            }
        }
        multiplies_all(&watcher, vocabulary, width, 16);
        let mask = numbers(vocabulary.div_ceil(32));
        candidates(&watcher, numbers(vocabulary), mask, numbers(MAX_TOP_K), numbers(MAX_TOP_K)).unwrap();
    }
    OTHER_HEADS.iter().for_each(|&heads| attends(&watcher, heads, STEPS[2]));
    [32, 64, 256].iter().for_each(|&width| remembers(&watcher, [2, 2], width, STEPS[2]));
    watcher.launches.into_inner()
}

#[test]
fn every_device_takes_the_launches_of_real_models() {
    // The watcher checks each.
    assert!(launches().len() > 1000);
}

/// No kernel is left out, and each is launched as declared:
/// with its own parameter, and no more threads than it is compiled for.
#[cfg(twin)]
#[test]
fn every_kernel_is_launched_as_it_is_declared() {
    let mut declared: std::collections::BTreeMap<String, (usize, usize)> =
        twin::kernels().map(|kernel| (kernel.name, (kernel.bytes, kernel.threads))).collect();
    assert!(declared.len() > 100, "{}", declared.len());
    let launches = launches();
    for launch in &launches {
        let (bytes, threads) = declared[&launch.kernel];
        assert_eq!(size_of_val(launch.params.words()), bytes, "{}", launch.kernel);
        assert!(launch.threads as usize <= threads, "{}: {} threads", launch.kernel, launch.threads);
    }
    declared.retain(|name, _| !launches.iter().any(|launch| launch.kernel == *name));
    assert!(declared.is_empty(), "never launched: {:?}", declared.keys());
}

#[test]
fn too_much_is_told() {
    let launch =
        Launch { kernel: "k".into(), grid: [1; 3], threads: 128, shared: 0, params: Params::default() };
    assert_eq!(launch.excess(), None);
    let told = |launch: Launch| launch.excess().unwrap();
    assert_eq!(told(Launch { threads: 1056, ..launch.clone() }), "k: 1056 threads in a block");
    assert_eq!(told(Launch { threads: 100, ..launch.clone() }), "k: 100 threads in a block");
    assert_eq!(told(Launch { grid: [1, 65536, 1], ..launch.clone() }), "k: a grid of [1, 65536, 1]");
    assert_eq!(told(Launch { grid: [0, 1, 1], ..launch.clone() }), "k: a grid of [0, 1, 1]");
    assert_eq!(told(Launch { shared: SHARED + 1, ..launch }), "k: 49153 bytes of shared memory");
}
