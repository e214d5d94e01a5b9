//! How reasoning is marked, and whether a turn has any.

/// The texts around a reasoning block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thinking {
    /// Opens a block.
    pub open: &'static str,
    /// Closes it.
    pub close: &'static str,
    /// The text between the end of the block and what follows.
    pub(crate) gap: &'static str,
    /// A text that shows that a chat template's model reasons.
    pub(super) sign: &'static str,
}

/// Whether a turn has a reasoning block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reasoning {
    /// It has none: the prompt closed an empty one, or the model doesn't reason.
    Never,
    /// It may begin with one.
    Optional,
    /// The prompt opened one, and the turn continues inside it.
    Open,
}

impl Thinking {
    pub(super) const fn tags(open: &'static str, close: &'static str) -> Self {
        Thinking { open, close, gap: "", sign: close }
    }

    /// Returns the marks with the gap that a chat template prints; `None` if it doesn't show the
    /// marks.
    pub fn in_template(self, template: &str) -> Option<Self> {
        // Jinja source may write a line feed as an escape.
        let shows = |text: &str| template.contains(text) || template.contains(&text.replace('\n', "\\n"));
        if !shows(self.open.trim_end()) && !shows(self.sign) {
            return None;
        }
        let gap = ["\n\n", "\n"].into_iter().find(|gap| shows(&format!("{}{gap}", self.close)));
        Some(if self.gap.is_empty() { Thinking { gap: gap.unwrap_or(""), ..self } } else { self })
    }

    /// Whether reasoning is possible after the end of a prompt; `wanted` = the request lets the
    /// model reason.
    pub fn after(self, generation_prompt: &str, wanted: bool) -> Reasoning {
        let last = |text: &str| generation_prompt.rfind(text.trim_end());
        match (last(self.open), last(self.close)) {
            (Some(open), close) if close.is_none_or(|close| close < open) => Reasoning::Open,
            (None, None) if wanted => Reasoning::Optional,
            _ => Reasoning::Never,
        }
    }
}
