//! How to parse an answer that was generated elsewhere.

use serde::Deserialize;

use super::{END_THINK, Format, Reasoning, THINK, Turn};
use crate::request::{Tool, ToolChoice};

/// Circumstances of an answer, with the names that llama.cpp's server gives them. Unknown keys are ignored.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ParseOptions {
    /// Whether a call was wanted.
    pub tool_choice: ToolChoice,
    /// Whether there may be several calls.
    pub parallel_tool_calls: bool,
    /// What to do with reasoning.
    pub reasoning_format: ReasoningFormat,
    /// The end of the prompt, from the header of the model's turn on. It may leave a reasoning block open, or hold the
    /// beginning of the answer.
    pub generation_prompt: String,
}

/// What to do with reasoning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReasoningFormat {
    /// Leave it in the text.
    None,
    /// Report it apart.
    #[default]
    Auto,
    /// The same, under the name of an API that did so first.
    Deepseek,
}

impl ParseOptions {
    /// The turn that was generated. Its parser wants [`ParseOptions::prefill`] first.
    pub fn turn(&self, format: Format, tools: Vec<Tool>) -> Turn {
        Turn {
            format,
            tools,
            tool_choice: self.tool_choice.clone(),
            parallel_tool_calls: self.parallel_tool_calls,
            reasoning: match self.reasoning_format {
                ReasoningFormat::None => Reasoning::Never,
                ReasoningFormat::Auto | ReasoningFormat::Deepseek => Reasoning::Optional,
            },
        }
    }

    /// The part of the answer that the prompt holds already.
    pub fn prefill(&self) -> &str {
        let answer = self.generation_prompt.split_once("assistant\n").map_or("", |(_, answer)| answer);
        let answer = answer.find(THINK).map_or(answer, |at| &answer[at..]);
        match self.reasoning_format {
            ReasoningFormat::None => answer.rsplit_once(END_THINK).map_or(answer, |(_, text)| text),
            ReasoningFormat::Auto | ReasoningFormat::Deepseek => answer,
        }
    }
}
