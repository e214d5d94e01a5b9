//! The table of formats.
//! Source: the chat templates that the models of each family ship with.
//!
//! The texts are those that the templates print in the history, whitespace included, so that a
//! generated call equals its rendering in the next prompt.

use super::{Calls, Encoding, Format, Keys, Layout, Piece, Tagged, Thinking};
use Piece::{Arguments, Id, Language, Name, Number, NumberedId, Object, Text};

/// All formats; if a template contains the texts of two, the earlier format wins.
pub(super) const ALL: &[&Format] = &[
    &HARMONY,
    &KIMI_K3,
    &KIMI,
    &DSML,
    &DSML_4,
    &DEEPSEEK_R1,
    &DEEPSEEK,
    &GEMMA4,
    &LFM2,
    &MISTRAL_ID,
    &MISTRAL,
    &MISTRAL_LIST,
    &SEED,
    &MINIMAX,
    &MINICPM,
    &NEMOTRON,
    &GRANITE3,
    &QWEN_XML,
    &GLM,
    &GLM_LINES,
    &HERMES,
    &LLAMA,
    &GENERIC,
    &CODE,
    &BARE,
];

/// Defaults that most formats share.
const PLAIN: Format = Format {
    name: "",
    templates: &[],
    tokens: &[],
    thinking: Thinking::tags("<think>", "</think>"),
    ends_reasoning: false,
    answer: ("", ""),
    calls: Calls { open: "", separator: "", close: "" },
    call: &[],
    layout: Layout::TextAndCalls,
    also: &[],
    drops: &[],
};

const NAME_AND_ARGUMENTS: Keys = Keys { name: "name", arguments: "arguments", id: None };
const JSON: Piece = Arguments(Encoding::Json);

/// Hermes, Qwen 2.5, Qwen 3, SmolLM 3, Granite 4.
static HERMES: Format = Format {
    name: "hermes",
    templates: &[&["<tool_call>", "\"name\""], &["<tool_call>", "'name'"], &["<tool_call>", "\\\"name\\\""]],
    calls: Calls { open: "", separator: "\n", close: "" },
    call: &[Text("<tool_call>\n"), Object(NAME_AND_ARGUMENTS), Text("\n</tool_call>")],
    ..PLAIN
};

/// For models that were trained on no format: Hermes' format, described in the prompt.
pub(super) static GENERIC: Format = Format {
    name: "generic",
    calls: Calls { open: "", separator: "\n", close: "" },
    call: &[Text("<tool_call>\n"), Object(NAME_AND_ARGUMENTS), Text("\n</tool_call>")],
    ..PLAIN
};

/// For models that were trained on code: a fenced block calls the tool that its first line names.
static CODE: Format = Format {
    name: "code",
    call: &[Language, Arguments(Encoding::Fence)],
    calls: Calls { open: "", separator: "\n", close: "" },
    also: &[("```", 0)],
    ..PLAIN
};

/// A turn that is either text or the JSON of a call, which is all that an endpoint can be held to
/// by a JSON schema.
pub(super) static BARE: Format =
    Format { name: "json", layout: Layout::TextOrObject, call: &[Object(NAME_AND_ARGUMENTS)], ..PLAIN };

/// Qwen 3.5, Qwen3-Coder, Nemotron 3, Step 3.5.
static QWEN_XML: Format = Format {
    name: "qwen-xml",
    templates: &[&["<function=", "<parameter="]],
    ends_reasoning: true,
    calls: Calls { open: "", separator: "\n", close: "" },
    call: &[
        Text("<tool_call>\n"),
        Text("<function="),
        Name,
        Text(">\n"),
        Arguments(Encoding::Tagged(&Tagged {
            open: "<parameter=",
            string: ">\n",
            other: ">\n",
            close: "\n</parameter>\n",
        })),
        Text("</function>\n</tool_call>"),
    ],
    also: &[("<function=", 1)],
    ..PLAIN
};

const GLM_ARGUMENTS: Piece = Arguments(Encoding::Tagged(&Tagged {
    open: "<arg_key>",
    string: "</arg_key><arg_value>",
    other: "</arg_key><arg_value>",
    close: "</arg_value>",
}));

/// GLM 4.7.
static GLM: Format = Format {
    name: "glm",
    templates: &[&["<tool_call>", "</arg_key><arg_value>"]],
    ends_reasoning: true,
    call: &[Text("<tool_call>"), Name, GLM_ARGUMENTS, Text("</tool_call>")],
    ..PLAIN
};

/// GLM 4.5, GLM 4.6, Ling 3: like GLM 4.7, with each part on its own line.
static GLM_LINES: Format = Format {
    name: "glm-lines",
    templates: &[&["<tool_call>", "<arg_key>"]],
    ends_reasoning: true,
    calls: Calls { open: "", separator: "\n", close: "" },
    call: &[
        Text("<tool_call>"),
        Name,
        Text("\n"),
        Arguments(Encoding::Tagged(&Tagged {
            open: "<arg_key>",
            string: "</arg_key>\n<arg_value>",
            other: "</arg_key>\n<arg_value>",
            close: "</arg_value>\n",
        })),
        Text("</tool_call>"),
    ],
    ..PLAIN
};

/// gpt-oss.
/// The parser also accepts the rest of the format: the recipient after the channel, other channels,
/// `<|constrain|>`.
static HARMONY: Format = Format {
    name: "harmony",
    templates: &[&["<|channel|>", "<|message|>"]],
    tokens: &["<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|call|>", "<|return|>"],
    thinking: Thinking {
        gap: "<|start|>assistant",
        ..Thinking::tags("<|channel|>analysis<|message|>", "<|end|>")
    },
    answer: ("<|channel|>final<|message|>", ""),
    calls: Calls { open: "", separator: "", close: "<|call|>" },
    call: &[Text(" to=functions."), Name, Text("<|channel|>commentary json<|message|>"), JSON],
    layout: Layout::Messages,
    ..PLAIN
};

/// Mistral Small 3.2, Magistral: each call has an id.
static MISTRAL_ID: Format = Format {
    name: "mistral-id",
    templates: &[&["[TOOL_CALLS]", "[CALL_ID]"]],
    tokens: &["[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"],
    thinking: Thinking::tags("[THINK]", "[/THINK]"),
    call: &[Text("[TOOL_CALLS]"), Name, Text("[CALL_ID]"), Id { length: 9 }, Text("[ARGS]"), JSON],
    ..PLAIN
};

/// Ministral 3, Devstral.
static MISTRAL: Format = Format {
    name: "mistral",
    templates: &[&["[TOOL_CALLS]", "[ARGS]"]],
    tokens: &["[TOOL_CALLS]", "[ARGS]"],
    thinking: Thinking::tags("[THINK]", "[/THINK]"),
    call: &[Text("[TOOL_CALLS]"), Name, Text("[ARGS]"), JSON],
    ..PLAIN
};

/// Mistral 7B v0.3, Nemo, Small up to 3.1: a list.
static MISTRAL_LIST: Format = Format {
    name: "mistral-list",
    templates: &[&["[TOOL_CALLS]"]],
    tokens: &["[TOOL_CALLS]"],
    thinking: Thinking::tags("[THINK]", "[/THINK]"),
    calls: Calls { open: "[TOOL_CALLS][", separator: ", ", close: "]" },
    call: &[Object(Keys { id: Some(("id", 9)), ..NAME_AND_ARGUMENTS })],
    drops: &["[/TOOL_CALLS]"],
    ..PLAIN
};

/// Llama 3.1, 3.2, 3.3.
static LLAMA: Format = Format {
    name: "llama3",
    templates: &[&["<|start_header_id|>", "\"parameters\": "]],
    calls: Calls { open: "", separator: "; ", close: "" },
    call: &[Object(Keys { name: "name", arguments: "parameters", id: None })],
    layout: Layout::TextOrObject,
    drops: &["<|python_tag|>"],
    ..PLAIN
};

/// DeepSeek V3.1.
static DEEPSEEK: Format = Format {
    name: "deepseek",
    templates: &[&["<｜tool▁call▁begin｜>", "<｜tool▁sep｜>"]],
    tokens: &["<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>"],
    ends_reasoning: true,
    calls: Calls { open: "<｜tool▁calls▁begin｜>", separator: "", close: "<｜tool▁calls▁end｜>" },
    call: &[Text("<｜tool▁call▁begin｜>"), Name, Text("<｜tool▁sep｜>"), JSON, Text("<｜tool▁call▁end｜>")],
    also: &[("<｜tool▁call▁begin｜>", 0)],
    ..PLAIN
};

/// DeepSeek R1 and its distillations.
static DEEPSEEK_R1: Format = Format {
    name: "deepseek-r1",
    templates: &[&["<｜tool▁sep｜>", "```json"]],
    tokens: &["<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>"],
    calls: Calls {
        open: "<｜tool▁calls▁begin｜>", separator: "\n", close: "<｜tool▁calls▁end｜>"
    },
    call: &[
        Text("<｜tool▁call▁begin｜>function<｜tool▁sep｜>"),
        Name,
        Text("\n```json\n"),
        JSON,
        Text("\n```<｜tool▁call▁end｜>"),
    ],
    ..PLAIN
};

const DSML_CALL: &[Piece] = &[
    Text("<｜DSML｜invoke name=\""),
    Name,
    Text("\">\n"),
    Arguments(Encoding::Tagged(&Tagged {
        open: "<｜DSML｜parameter name=\"",
        string: "\" string=\"true\">",
        other: "\" string=\"false\">",
        close: "</｜DSML｜parameter>\n",
    })),
    Text("</｜DSML｜invoke>\n"),
];

/// DeepSeek V3.2.
static DSML: Format = Format {
    name: "dsml",
    templates: &[&["｜DSML｜", "function_calls"]],
    ends_reasoning: true,
    calls: Calls {
        open: "<｜DSML｜function_calls>\n", separator: "", close: "</｜DSML｜function_calls>"
    },
    call: DSML_CALL,
    ..PLAIN
};

/// DeepSeek V4: like V3.2, with another name for the section.
static DSML_4: Format = Format {
    name: "dsml-4",
    templates: &[&["｜DSML｜"]],
    ends_reasoning: true,
    calls: Calls { open: "<｜DSML｜tool_calls>\n", separator: "", close: "</｜DSML｜tool_calls>" },
    call: DSML_CALL,
    ..PLAIN
};

/// Kimi K2.
static KIMI: Format = Format {
    name: "kimi",
    templates: &[&["<|tool_call_argument_begin|>"]],
    tokens: &["<|tool_calls_section_begin|>", "<|tool_call_begin|>", "<|tool_call_argument_begin|>"],
    ends_reasoning: true,
    calls: Calls { open: "<|tool_calls_section_begin|>", separator: "", close: "<|tool_calls_section_end|>" },
    call: &[
        Text("<|tool_call_begin|>"),
        NumberedId,
        Text("<|tool_call_argument_begin|>"),
        JSON,
        Text("<|tool_call_end|>"),
    ],
    also: &[("<|tool_call_begin|>", 0)],
    ..PLAIN
};

/// Kimi K3.
static KIMI_K3: Format = Format {
    name: "kimi-k3",
    templates: &[&["<|open|>", "<|sep|>", "<|close|>"]],
    tokens: &["<|open|>", "<|sep|>", "<|close|>"],
    thinking: Thinking { sign: "'think'", ..Thinking::tags("<|open|>think<|sep|>", "<|close|>think<|sep|>") },
    ends_reasoning: true,
    answer: ("<|open|>response<|sep|>", "<|close|>response<|sep|>"),
    calls: Calls { open: "<|open|>tools<|sep|>", separator: "", close: "<|close|>tools<|sep|>" },
    call: &[
        Text("<|open|>call tool=\""),
        Name,
        Text("\" index=\""),
        Number,
        Text("\"<|sep|>"),
        Arguments(Encoding::Tagged(&Tagged {
            open: "<|open|>argument key=\"",
            string: "\" type=\"string\"<|sep|>",
            other: "\" type=\"{type}\"<|sep|>",
            close: "<|close|>argument<|sep|>",
        })),
        Text("<|close|>call<|sep|>"),
    ],
    layout: Layout::TextAlwaysAndCalls,
    drops: &[
        "<|open|>think<|sep|>",
        "<|open|>response<|sep|>",
        "<|close|>response<|sep|>",
        "<|close|>message<|sep|>",
    ],
    ..PLAIN
};

/// LFM 2, LFM 2.5.
static LFM2: Format = Format {
    name: "lfm2",
    templates: &[&["<|tool_call_start|>"], &["<|tool_list_start|>"], &["List of tools: ["]],
    tokens: &["<|tool_call_start|>", "<|tool_call_end|>"],
    calls: Calls { open: "<|tool_call_start|>[", separator: ", ", close: "]<|tool_call_end|>" },
    call: &[Name, Text("("), Arguments(Encoding::Keywords), Text(")")],
    ..PLAIN
};

/// Gemma 4.
static GEMMA4: Format = Format {
    name: "gemma4",
    templates: &[&["<|tool_call>call:"]],
    tokens: &["<|tool_call>", "<tool_call|>", "<|\"|>"],
    thinking: Thinking::tags("<|channel>thought\n", "<channel|>"),
    call: &[Text("<|tool_call>call:"), Name, Arguments(Encoding::Braces), Text("<tool_call|>")],
    drops: &["<|tool_response>", "<|channel>thought\n<channel|>", "<channel|>"],
    ..PLAIN
};

/// Granite 3, Phi-4-mini.
static GRANITE3: Format = Format {
    name: "granite3",
    templates: &[&["<|tool_call|>"]],
    calls: Calls { open: "<|tool_call|>[", separator: ", ", close: "]" },
    call: &[Object(NAME_AND_ARGUMENTS)],
    drops: &["<|/tool_call|>"],
    ..PLAIN
};

/// Nemotron Nano 2.
static NEMOTRON: Format = Format {
    name: "nemotron",
    templates: &[&["<TOOLCALL>"]],
    calls: Calls { open: "<TOOLCALL>[", separator: ", ", close: "]</TOOLCALL>" },
    call: &[Object(NAME_AND_ARGUMENTS)],
    ..PLAIN
};

/// Seed-OSS.
static SEED: Format = Format {
    name: "seed",
    templates: &[&["<seed:tool_call>"]],
    thinking: Thinking::tags("<seed:think>", "</seed:think>"),
    calls: Calls { open: "", separator: "\n", close: "" },
    call: &[
        Text("<seed:tool_call>\n<function="),
        Name,
        Text(">\n"),
        Arguments(Encoding::Tagged(&Tagged {
            open: "<parameter=",
            string: ">",
            other: ">",
            close: "</parameter>\n",
        })),
        Text("</function>\n</seed:tool_call>"),
    ],
    ..PLAIN
};

const NAMED_PARAMETERS: Piece = Arguments(Encoding::Tagged(&Tagged {
    open: "<parameter name=\"",
    string: "\">",
    other: "\">",
    close: "</parameter>\n",
}));

/// MiniMax M2.
static MINIMAX: Format = Format {
    name: "minimax",
    templates: &[&["<minimax:tool_call>"]],
    calls: Calls { open: "<minimax:tool_call>\n", separator: "", close: "</minimax:tool_call>" },
    call: &[Text("<invoke name=\""), Name, Text("\">\n"), NAMED_PARAMETERS, Text("</invoke>\n")],
    ..PLAIN
};

/// MiniCPM 5.
static MINICPM: Format = Format {
    name: "minicpm",
    templates: &[&["<function name=\"", "<param name=\""]],
    calls: Calls { open: "", separator: "\n", close: "" },
    call: &[
        Text("<function name=\""),
        Name,
        Text("\">"),
        Arguments(Encoding::Tagged(&Tagged {
            open: "<param name=\"",
            string: "\">",
            other: "\">",
            close: "</param>",
        })),
        Text("</function>"),
    ],
    ..PLAIN
};
