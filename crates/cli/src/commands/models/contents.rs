//! The contents of a model file and how alara interprets them, as data.

use std::collections::BTreeMap;
use std::path::PathBuf;

use alara_engine::inspect::{
    self, Architecture, Array, ChatTemplate, Facts, MemoryBreakdown, MemoryEstimate, Placement, Sizes,
    TensorType, Tokenizer, Value, chat_template, computes,
};
use alara_engine::{Engine, Gguf, KvType, Offload, Options};
use alara_models::Entry;
use alara_models::catalog::entries;
use serde::Serialize;
use serde_json::{Map, Value as Json, json};

use super::recommendation::Recommendation;
use crate::tuned::Tuned;

/// The result of `alara models show`; its fields are those of `--json`.
#[derive(Serialize)]
pub struct Contents {
    pub file: String,
    /// Path of the file; `None` if the model is built in.
    pub path: Option<PathBuf>,
    /// Number of files of a split model.
    pub parts: usize,
    pub bytes: u64,
    pub name: Option<String>,
    pub architecture: Option<String>,
    /// Sizes from the metadata, whatever the architecture; a list if a size differs between layers.
    pub sizes: Map<String, Json>,
    pub parameters: u64,
    pub tensor_count: usize,
    /// Sorted by share of the file, largest first.
    pub tensor_types: Vec<TypeUse>,
    pub tokenizer: Vocabulary,
    pub chat_template: Template,
    /// The default sampling parameters.
    pub sampling: Recommendation,
    /// Results of `alara tune`.
    pub tuned: Option<Tuned>,
    /// Why alara can't run the model; empty if it can.
    pub problems: Vec<String>,
    /// If the model can't run, the most similar models in the catalog, nearest size first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nearest: Vec<String>,
    /// Memory needs, if the model can be loaded.
    pub memory: Option<Memory>,
    /// What goes on the requested GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placement: Option<GpuPlacement>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tensors: Vec<Tensor>,
}

/// All tensors of one type.
#[derive(Serialize)]
pub struct TypeUse {
    pub kind: String,
    pub tensors: usize,
    pub bytes: u64,
    /// Whether alara can compute with this type.
    pub computes: bool,
}

/// Metadata of the tokenizer.
#[derive(Default, Serialize)]
pub struct Vocabulary {
    pub model: Option<String>,
    pub pre: Option<String>,
    pub tokens: usize,
    pub add_bos: Option<bool>,
    /// Special tokens by role, with id and text.
    pub special: Map<String, Json>,
    /// Tokens that end an answer; empty if alara doesn't support the tokenizer.
    pub ends: Vec<String>,
}

/// The chat template, if there is one.
#[derive(Serialize)]
pub struct Template {
    pub characters: Option<usize>,
    /// Its format of tool calls, if alara knows it.
    pub tool_format: Option<&'static str>,
}

/// Memory needs, in bytes, for one sequence of a context length.
#[derive(Serialize)]
pub struct Memory {
    pub context: usize,
    pub trained_context: usize,
    #[serde(flatten)]
    pub held: MemoryUse,
}

/// Bytes of memory for the parts of a model.
#[derive(Serialize)]
pub struct MemoryUse {
    /// Weights as stored: they are used directly from the mapped file.
    pub weights: u64,
    pub kv: u64,
    /// Recurrent state.
    pub state: u64,
    /// Activations, vectors in f32, tokenizer, program.
    pub working: u64,
    pub total: u64,
}

impl From<MemoryEstimate> for MemoryUse {
    fn from(estimate: MemoryEstimate) -> Self {
        let MemoryEstimate { weights, kv, state, working } = estimate;
        MemoryUse { weights, kv, state, working, total: estimate.total() }
    }
}

/// What goes on a GPU.
#[derive(Serialize)]
pub struct GpuPlacement {
    pub device: String,
    /// Memory available on the GPU.
    pub gpu_memory: u64,
    /// How many layers go on the GPU, and the total number.
    pub gpu_layers: usize,
    pub layers: usize,
    pub gpu: Option<MemoryUse>,
    pub host: Option<MemoryUse>,
    /// Why no layer goes on the GPU.
    pub refusal: Option<String>,
}

/// A row of the tensor table.
#[derive(Serialize)]
pub struct Tensor {
    pub name: String,
    pub shape: Vec<u64>,
    pub kind: String,
    pub bytes: u64,
    pub offset: u64,
}

/// Label and metadata key after the architecture's name.
const SIZES: [(&str, &str); 10] = [
    ("layers", "block_count"),
    ("width", "embedding_length"),
    ("heads", "attention.head_count"),
    ("kv_heads", "attention.head_count_kv"),
    ("key_width", "attention.key_length"),
    ("value_width", "attention.value_length"),
    ("ffn_width", "feed_forward_length"),
    ("experts", "expert_count"),
    ("experts_used", "expert_used_count"),
    ("context", "context_length"),
];

impl Contents {
    /// Reads the contents of a file; `context` and `kv` are for the memory estimate, `tensors`
    /// lists the tensors, `offload` chooses the device.
    /// An error explains why the device can't be used.
    pub fn of(
        gguf: &Gguf,
        context: Option<usize>,
        kv: KvType,
        tensors: bool,
        offload: &Offload,
    ) -> anyhow::Result<Contents> {
        let metadata = gguf.metadata();
        let text = |key: &str| match metadata.get(key) {
            Some(Value::String(text)) => Some(text.clone()),
            _ => None,
        };
        let mut problems = Vec::new();
        let architecture = text("general.architecture");
        let memory =
            memory(gguf, context, kv, offload).map_err(|problem| problems.push(problem.to_string())).ok();

        let types = types(gguf);
        let tokenizer = inspect::tokenizer(gguf).map_err(|problem| problems.push(problem.to_string())).ok();
        let template = text("tokenizer.chat_template").filter(|template| !template.trim().is_empty());
        // An encoder needs none.
        let is_encoder = Architecture::of(gguf).is_ok_and(|architecture| architecture.encoder);
        if let Some(tokenizer) = tokenizer.as_ref().filter(|_| !is_encoder)
            && let Err(problem) = chat_template(gguf, tokenizer, None)
        {
            problems.push(problem.to_string());
        }
        let placement = match &memory {
            Some(memory) => placement(gguf, memory.context, kv, offload)?,
            None => None,
        };
        let parameters = gguf.tensors().fold(0, |sum: u64, tensor| sum.saturating_add(tensor.values()));
        let nearest = match &architecture {
            Some(architecture) if !problems.is_empty() => nearest(entries()?, architecture, parameters),
            _ => Vec::new(),
        };
        Ok(Contents {
            file: gguf.name().to_owned(),
            path: None,
            parts: gguf.parts(),
            bytes: gguf.file_bytes(),
            name: text("general.name"),
            sizes: sizes(gguf, architecture.as_deref().unwrap_or_default()),
            architecture,
            parameters,
            tensor_count: gguf.tensors().len(),
            memory,
            placement,
            tensor_types: types,
            tokenizer: vocabulary(gguf, tokenizer.as_ref()),
            chat_template: Template {
                characters: template.as_ref().map(|template| template.chars().count()),
                tool_format: template
                    .as_deref()
                    .and_then(|source| ChatTemplate::new(source, "", "").ok()?.format())
                    .map(|format| format.name),
            },
            sampling: Recommendation::default(),
            tuned: None,
            problems,
            nearest,
            tensors: if tensors { gguf.tensors().map(tensor).collect() } else { Vec::new() },
        })
    }
}

/// Returns up to three names from `entries` whose architecture equals this one, or is most similar
/// to it, nearest size first.
fn nearest(entries: &[Entry], architecture: &str, parameters: u64) -> Vec<String> {
    let known = entries.iter().map(|entry| entry.architecture.as_str());
    let Some(near) = alara_engine::nearest(architecture, known) else { return Vec::new() };
    let mut alike: Vec<&Entry> = entries.iter().filter(|entry| entry.architecture == near).collect();
    // By which factor it is larger or smaller.
    let far = |entry: &Entry| (entry.parameters * 1e9 / (parameters.max(1) as f64)).ln().abs();
    alike.sort_by(|a, b| far(a).total_cmp(&far(b)));
    alike.into_iter().take(3).map(|entry| entry.name.clone()).collect()
}

fn tensor(info: &alara_engine::inspect::TensorInfo) -> Tensor {
    Tensor {
        name: info.name.clone(),
        shape: info.shape.clone(),
        kind: info.kind.name(),
        bytes: info.bytes,
        offset: info.offset(),
    }
}

fn types(gguf: &Gguf) -> Vec<TypeUse> {
    let mut used: BTreeMap<TensorType, (usize, u64)> = BTreeMap::new();
    for tensor in gguf.tensors() {
        let (tensors, bytes) = used.entry(tensor.kind).or_default();
        *tensors += 1;
        *bytes = bytes.saturating_add(tensor.bytes);
    }
    let mut types: Vec<TypeUse> = (used.into_iter())
        .map(|(kind, (tensors, bytes))| TypeUse {
            kind: kind.name(),
            tensors,
            bytes,
            computes: computes(kind),
        })
        .collect();
    types.sort_by_key(|used| std::cmp::Reverse(used.bytes));
    types
}

fn sizes(gguf: &Gguf, architecture: &str) -> Map<String, Json> {
    let metadata = gguf.metadata();
    let stated = SIZES.into_iter().filter_map(|(label, key)| {
        let key = format!("{architecture}.{key}");
        let value = match metadata.get(&key)? {
            Value::Array(Array::Bool(_)) => return None,
            Value::Array(_) => json!(metadata.u64s(&key).ok()??),
            _ => json!(metadata.u64(&key).ok()??),
        };
        Some((label.to_owned(), value))
    });
    let rows = gguf.tensor("token_embd.weight").and_then(|tensor| tensor.shape.get(1).copied());
    stated.chain(rows.map(|rows| ("vocabulary".to_owned(), json!(rows)))).collect()
}

fn memory(
    gguf: &Gguf,
    context: Option<usize>,
    kv: KvType,
    offload: &Offload,
) -> alara_engine::Result<Memory> {
    let trained_context = Sizes::of(&Facts::new(gguf, &Architecture::of(gguf)?)?)?.context;
    let options = Options { kv, memory: alara_models::memory::available(), ..Options::default() };
    let default = || {
        let there = Options { offload: *offload, ..options.clone() };
        // An unusable GPU is reported elsewhere.
        Engine::context_of(gguf, &there).or_else(|_| Engine::context_of(gguf, &options))
    };
    let context = context.map_or_else(default, Ok)?;
    let estimate = MemoryEstimate::of(gguf, context, 1, kv)?;
    Ok(Memory { context, trained_context, held: estimate.into() })
}

fn placement(
    gguf: &Gguf,
    context: usize,
    kv: KvType,
    offload: &Offload,
) -> alara_engine::Result<Option<GpuPlacement>> {
    let parts = MemoryBreakdown::of(gguf, context, kv)?;
    if parts.blocks.is_empty() {
        // An encoder stays on the CPU.
        return Ok(None);
    }
    let Some((gpu_memory, placed)) = offload.plan(&parts)? else { return Ok(None) };
    let (device, layers) = (offload.device.to_string(), parts.blocks.len());
    Ok(Some(match placed {
        Ok(Placement { layers: gpu_layers, gpu, host, .. }) => GpuPlacement {
            device,
            gpu_memory,
            gpu_layers,
            layers,
            gpu: Some(gpu.into()),
            host: Some(host.into()),
            refusal: None,
        },
        Err(refusal) => {
            let refusal = Some(refusal.message(context));
            GpuPlacement { device, gpu_memory, gpu_layers: 0, layers, gpu: None, host: None, refusal }
        }
    }))
}

fn vocabulary(gguf: &Gguf, tokenizer: Option<&Tokenizer>) -> Vocabulary {
    let metadata = gguf.metadata();
    let key = |name: &str| format!("tokenizer.ggml.{name}");
    let text = |name: &str| metadata.str(&key(name)).ok().flatten().map(str::to_owned);
    let tokens = metadata.strings(&key("tokens")).ok().flatten();
    let written = |id: u64| {
        let text = usize::try_from(id).ok().and_then(|id| tokens?.get(id));
        text.map_or_else(|| format!("{id}, which is not in the vocabulary"), |text| format!("{id} {text}"))
    };
    let special = metadata.iter().filter_map(|(key, _)| {
        let role = key.strip_prefix("tokenizer.ggml.")?.strip_suffix("_token_id")?;
        Some((role.to_owned(), Json::String(written(metadata.u64(key).ok()??))))
    });
    Vocabulary {
        model: text("model"),
        pre: text("pre"),
        tokens: tokens.map_or(0, alara_engine::inspect::Strings::len),
        add_bos: match tokenizer {
            Some(tokenizer) => Some(tokenizer.add_bos()),
            None => metadata.bool(&key("add_bos_token")).ok().flatten(),
        },
        special: special.collect(),
        ends: tokenizer.map_or_else(Vec::new, |tokenizer| {
            tokenizer.ends_of_turn().iter().map(|&id| written(u64::from(id))).collect()
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alara_engine::Device;
    use alara_engine::inspect::Writer;

    fn open(case: &str) -> Gguf {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        Gguf::open(&root.join(format!("tests/fixtures/arch/{case}/model.gguf"))).unwrap()
    }

    #[test]
    fn memory_at_a_context() {
        let gguf = open("qwen3-exact");
        let size = |key: &str| gguf.metadata().u64(&format!("qwen3.{key}")).unwrap().unwrap();
        let token =
            size("block_count") * size("attention.head_count_kv") * size("attention.key_length") * 2 * 2;
        let at = |context, kv| {
            Contents::of(&gguf, Some(context), kv, false, &Offload::cpu()).unwrap().memory.unwrap()
        };
        let memory = at(128, KvType::F16);
        assert_eq!(memory.context, 128);
        let memory = memory.held;
        assert_eq!((memory.kv, memory.state), (128 * token, 0));
        assert_eq!(memory.total, memory.weights + memory.kv + memory.working);
        assert_eq!(at(128, KvType::F32).held.kv, 2 * memory.kv);
        // A context longer than anybody would request.
        assert_eq!(at(usize::MAX, KvType::F16).held.total, u64::MAX);
    }

    #[test]
    fn a_gpu_can_be_asked_for_that_is_not_here() {
        let gguf = open("qwen3-exact");
        let of = |memory| {
            let offload = Offload { device: Device::Cuda(0), layers: None, memory: Some(memory) };
            Contents::of(&gguf, Some(128), KvType::F16, false, &offload).unwrap().placement.unwrap()
        };
        let large = of(8 << 30);
        assert_eq!((large.gpu_layers, large.gpu_memory), (large.layers, 8 << 30));
        assert_eq!(large.host.unwrap().kv, 0);
        let small = of(1 << 20);
        assert!(small.gpu.is_none() && small.refusal.unwrap().contains("but 1.0 MiB can be had"));
    }

    /// Copies a file without some keys and tensors.
    fn without(gguf: &Gguf, names: &[&str]) -> Writer {
        let kept = |name: &str| !names.contains(&name);
        let metadata = gguf.metadata().iter().filter(|(key, _)| kept(key));
        let writer = metadata.fold(Writer::new(), |writer, (key, value)| writer.meta(key, value.clone()));
        let tensors = gguf.tensors().filter(|info| kept(&info.name));
        tensors.fold(writer, |writer, info| {
            writer.tensor(&info.name, &info.shape, info.kind, gguf.data(info).to_vec())
        })
    }

    #[test]
    fn what_stands_against_running() {
        #[track_caller]
        fn check(writer: &Writer, expected: &[&str], near: &str) {
            let gguf = Gguf::from_vec("test.gguf", writer.bytes().unwrap()).unwrap();
            let contents = Contents::of(&gguf, None, KvType::F16, true, &Offload::cpu()).unwrap();
            assert_eq!(contents.problems.len(), expected.len(), "{:?}", contents.problems);
            for (problem, words) in contents.problems.iter().zip(expected) {
                assert!(problem.contains(words), "{problem:?} lacks {words:?}");
            }
            assert_eq!(contents.nearest.first().map_or("", String::as_str), near);
        }
        let qwen = open("qwen3-exact");
        let template = |writer: Writer| writer.meta("tokenizer.chat_template", "{{ messages }}");
        let whole = || template(Writer::copy_of(&qwen));
        let tensor = |name: &str, kind| whole().tensor(name, &[8], kind, [0; 32]);
        check(&whole(), &[], "");
        // Nothing reads this tensor.
        check(&tensor("v.odd", TensorType(97)), &[], "");
        let words = "is no language model but a vocabulary without weights; name the file of a model; a vocabulary serves `alara debug \
                     tokenize` alone";
        check(&Writer::new(), &[words, "test.gguf has no metadata key tokenizer.ggml.model"], "");

        // The error names the missing tensor, and the most similar one.
        let missing = |name: &str| template(without(&qwen, &[name]));
        check(
            &missing("blk.2.attn_q.weight"),
            &["the tensor `blk.2.attn_q.weight` is missing"],
            "qwen3-0.6b",
        );
        check(
            &missing("qwen3.context_length"),
            &["the metadata key `qwen3.context_length` is missing"],
            "qwen3-0.6b",
        );
        check(&missing("tokenizer.ggml.pre"), &["tokenizer.ggml.pre"], "qwen3-0.6b");
        check(&tensor("blk.0.odd.weight", TensorType::F32), &["the tensor `blk.0.odd.weight`"], "qwen3-0.6b");
        check(&whole().meta("qwen3.odd", 3u32), &["the metadata key `qwen3.odd`"], "qwen3-0.6b");
        check(
            &whole().meta("tokenizer.ggml.pre", "qwen22"),
            &[
                "\"qwen22\" (tokenizer.ggml.pre), which is not among the 91 known ones, did you mean \"qwen2\"?",
            ],
            "qwen3-0.6b",
        );
        check(
            &whole().meta("general.architecture", "qwen3vl"),
            &[
                "the architecture `qwen3vl` is not supported; of those that are, qwen3 is most like it (supported: ",
            ],
            "qwen3-0.6b",
        );
        check(&whole().meta("general.architecture", "nothing-like-it"), &["the architecture"], "");
    }

    #[test]
    fn the_nearest_are_of_the_same_family_and_size() {
        let near = |architecture: &str, parameters| nearest(entries().unwrap(), architecture, parameters);
        assert_eq!(near("qwen3", 9_000_000_000), ["qwen3-8b", "qwen3-4b", "qwen3-1.7b"]);
        assert_eq!(near("gptoss", 120_000_000_000), ["gpt-oss-20b"]);
        assert_eq!(near("mamba2", 1 << 30), [""; 0]);
    }
}
