//! How to parse an answer that was generated elsewhere.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{Format, Reasoning, Thinking, Turn};
use crate::request::{Tool, ToolChoice};

/// The context of an answer; its keys have the names that llama.cpp's server uses.
/// Unknown keys are ignored.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ParseOptions {
    /// Whether the answer could or had to be a call.
    pub tool_choice: ToolChoice,
    /// Whether the answer could have several calls.
    pub parallel_tool_calls: bool,
    /// Where reasoning goes.
    pub reasoning_format: ReasoningFormat,
    /// The end of the prompt, from the header of the model's turn on.
    /// It may leave a reasoning block open, or hold the beginning of the answer.
    pub generation_prompt: String,
}

/// Where reasoning goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReasoningFormat {
    /// Leave it in the text.
    None,
    /// Report it separately.
    #[default]
    Auto,
    /// As `auto`, under the name that DeepSeek's API introduced.
    Deepseek,
}

/// Ends of the header of the model's turn, in the templates of the families that we know.
const HEADERS: [&str; 18] = [
    "<|im_start|>assistant\n",
    "<|start_header_id|>assistant<|end_header_id|>\n\n",
    "<|start|>assistant",
    "<|im_assistant|>assistant<|im_middle|>",
    "<|open|>message role=\"assistant\"<|sep|>",
    "<|start_of_role|>assistant<|end_of_role|>",
    "<start_of_turn>model\n",
    "<|turn>model\n",
    "<role>ASSISTANT</role>\n",
    "<SPECIAL_11>Assistant\n",
    "<seed:bos>assistant\n",
    "assistant<|role_sep|>\n",
    "<｜Assistant｜>",
    "<|assistant|>",
    "<|Bot|>",
    "]~b]ai\n",
    "<|CHATBOT_TOKEN|>",
    "assistant:",
];

impl ParseOptions {
    /// The turn of a model that marks its reasoning with `thinking`.
    /// Push [`ParseOptions::prefill`] into its parser first.
    pub fn turn(&self, format: &'static Format, thinking: Option<Thinking>, tools: Vec<Tool>) -> Turn {
        let apart = self.reasoning_format != ReasoningFormat::None && thinking.is_some();
        Turn {
            format,
            tools,
            tool_choice: self.tool_choice.clone(),
            bound: BTreeMap::new(),
            parallel_tool_calls: self.parallel_tool_calls,
            reasoning: if apart { Reasoning::Optional } else { Reasoning::Never },
            thinking,
            schema: None,
            grammar: None,
            string_limit: None,
            raw: false,
        }
    }

    /// The part of the answer that the prompt already contains.
    pub fn prefill(&self, thinking: Option<Thinking>) -> &str {
        let prompt = self.generation_prompt.as_str();
        let header = HEADERS.iter().find_map(|header| Some(prompt.find(header)? + header.len()));
        let answer = &prompt[header.unwrap_or(0)..];
        match (self.reasoning_format, thinking) {
            // Finished reasoning doesn't belong to the text.
            (ReasoningFormat::None, Some(thinking)) => {
                answer.rsplit_once(thinking.close).map_or(answer, |(_, text)| text)
            }
            _ => answer,
        }
    }
}
