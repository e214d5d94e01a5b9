//! How reasoning is marked, and whether a turn has some.

/// The texts around a reasoning block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thinking {
    /// Opens a block.
    pub open: &'static str,
    /// Closes it.
    pub close: &'static str,
    /// What stands between the end of the block and what follows.
    pub(crate) gap: &'static str,
    /// A text by which a chat template shows that the model reasons.
    pub(super) sign: &'static str,
}

/// Whether a turn has a reasoning block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reasoning {
    /// No: the prompt closed an empty one, or the model doesn't reason.
    Never,
    /// The turn may begin with one.
    Optional,
    /// The prompt has opened it, the turn continues inside.
    Open,
}

impl Thinking {
    pub(super) const fn tags(open: &'static str, close: &'static str) -> Self {
        Thinking { open, close, gap: "", sign: close }
    }

    /// The same, with the gap that a chat template prints, if the template shows the marks at all.
    pub fn in_template(self, template: &str) -> Option<Self> {
        // Source text of Jinja: a line feed may be spelled out.
        let shows = |text: &str| template.contains(text) || template.contains(&text.replace('\n', "\\n"));
        if !shows(self.open.trim_end()) && !shows(self.sign) {
            return None;
        }
        let gap = ["\n\n", "\n"].into_iter().find(|gap| shows(&format!("{}{gap}", self.close)));
        Some(if self.gap.is_empty() { Thinking { gap: gap.unwrap_or(""), ..self } } else { self })
    }

    /// What the end of a prompt leaves possible; `wanted` says whether the request lets the model
    /// reason.
    pub fn after(self, generation_prompt: &str, wanted: bool) -> Reasoning {
        let last = |text: &str| generation_prompt.rfind(text.trim_end());
        match (last(self.open), last(self.close)) {
            (Some(open), close) if close.is_none_or(|close| close < open) => Reasoning::Open,
            (None, None) if wanted => Reasoning::Optional,
            _ => Reasoning::Never,
        }
    }
}
