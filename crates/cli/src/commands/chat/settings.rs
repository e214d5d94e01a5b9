//! The settings of a chat that `/set` and `/system` change: sampling, reasoning and directives.

use std::collections::BTreeMap;

use alara_engine::{Sampling, SamplingOverrides, nearest};
use alara_harness::Npc;
use anyhow::bail;
use serde_json::Value;

use crate::ui::HINT;

/// The word that resets a setting.
pub const RESET: &str = "reset";

/// The sampling parameters, with descriptions.
const FIELDS: [(&str, &str); 8] = [
    ("temperature", "divides the logits; 0 takes the most likely token"),
    ("top_p", "keeps the fewest tokens that are together so likely; 1 is all"),
    ("top_k", "keeps so many of the most likely tokens; 0 is all"),
    ("min_p", "drops tokens less likely than this share of the most likely one"),
    ("repetition_penalty", "divides the logits of seen tokens; 1 is off"),
    ("presence_penalty", "taken off the logits of seen tokens; 0 is off"),
    ("frequency_penalty", "the same, once per occurrence; 0 is off"),
    ("seed", "begins the random draws: the same again gives the same text"),
];

/// A setting that isn't a sampling option.
const MAX_TOKENS: (&str, &str) = ("max_tokens", "most tokens of one turn");
const THINKING: (&str, &str) = ("thinking", "whether a model that can reason does so: on or off");

/// Formats a parameter: 0 rather than JSON's 0.0.
fn shown(value: &Value) -> String {
    value.as_f64().filter(|_| value.is_f64()).map_or_else(|| value.to_string(), |number| number.to_string())
}

/// The changed settings.
pub struct Settings {
    /// Sampling at the start of the chat.
    begun: SamplingOverrides,
    /// Whether reasoning was on or off at the start.
    begun_thinking: Option<bool>,
    max_tokens: Option<usize>,
    /// Whether the model reasons; `None` keeps its default.
    pub thinking: Option<bool>,
    /// Directives that replace those in NPCs' files.
    pub directives: BTreeMap<String, String>,
}

impl Settings {
    /// Starts without changes; `sampling` and `thinking` were requested on the command line.
    pub fn new(sampling: &SamplingOverrides, thinking: Option<bool>) -> Self {
        Settings {
            begun: sampling.clone(),
            begun_thinking: thinking,
            max_tokens: None,
            thinking,
            directives: BTreeMap::new(),
        }
    }

    /// Returns the NPC with the changes applied.
    pub fn applied(&self, npc: &Npc) -> Npc {
        let mut npc = npc.clone();
        npc.limits.turn_tokens = self.max_tokens.unwrap_or(npc.limits.turn_tokens);
        match self.directives.get(&npc.name) {
            Some(directive) => npc.with_directive(directive),
            None => npc,
        }
    }

    /// Replaces an NPC's directive, or restores the one in its file.
    pub fn direct(&mut self, npc: &str, directive: Option<String>) {
        match directive {
            Some(text) => drop(self.directives.insert(npc.to_owned(), text)),
            None => drop(self.directives.remove(npc)),
        }
    }

    /// Applies the text after `/set`: `NAME VALUE`, `NAME reset` or `reset`.
    /// Returns a message with the new value.
    ///
    /// # Errors
    /// There is no such option, or it doesn't accept the value.
    pub fn set(
        &mut self,
        typed: &str,
        sampling: &mut SamplingOverrides,
        npc: &Npc,
    ) -> anyhow::Result<String> {
        if typed == RESET {
            (self.max_tokens, self.thinking) = (None, self.begun_thinking);
            sampling.clone_from(&self.begun);
            return Ok("all is as it was at the start".to_owned());
        }
        let (name, value) = typed.split_once([' ', '=']).unwrap_or((typed, ""));
        let (name, value) = (name.trim(), value.trim_matches([' ', '=']));
        let again = value == RESET;
        let wants = |what: &str| {
            anyhow::anyhow!("`{name}` is {what}, not `{value}`{HINT}/set {name} {RESET} takes it back")
        };
        match name {
            "max_tokens" if again => self.max_tokens = None,
            "max_tokens" => match value.parse() {
                Ok(most @ 1..) => self.max_tokens = Some(most),
                _ => return Err(wants("a number from 1 up")),
            },
            "thinking" => {
                self.thinking = match value {
                    RESET => self.begun_thinking,
                    "on" => Some(true),
                    "off" => Some(false),
                    _ => return Err(wants("on or off")),
                }
            }
            _ => {
                if !FIELDS.iter().any(|(field, _)| *field == name) {
                    let names: Vec<&str> = names().collect();
                    let hint = match nearest(name, names.iter().copied()) {
                        Some(near) => format!("/set {near}"),
                        None => format!("one of {}", names.join(", ")),
                    };
                    bail!("there is no `{name}` to be set{HINT}{hint}");
                }
                let set = match again {
                    true => sampling.set(name, self.begun.get(name).as_ref()),
                    false => sampling.write(name, value),
                };
                set.map_err(|what| wants(&what))?;
            }
        }
        Ok(match name {
            "max_tokens" => format!("max_tokens {}", self.applied(npc).limits.turn_tokens),
            _ if again => format!("{name} is as it was at the start"),
            _ => format!("{name} {value}"),
        })
    }

    /// Returns a row per option: name, value, where the value comes from, description.
    /// `model` has the model's defaults.
    pub fn rows(&self, sampling: &SamplingOverrides, model: &Sampling, npc: &Npc) -> Vec<Vec<String>> {
        let (now, changed) = (SamplingOverrides::from(sampling.over(model)), model.changed());
        let mut rows: Vec<Vec<String>> = FIELDS
            .iter()
            .map(|(name, about)| {
                let (own, begun) = (sampling.get(name), self.begun.get(name));
                let from = match own {
                    Some(_) if own != begun => "/set",
                    Some(_) => "the start",
                    None if changed.get(name).is_some() => "the model",
                    None => "default",
                };
                let now = now.get(name).as_ref().map_or_else(String::new, shown);
                vec![(*name).to_owned(), now, from.to_owned(), (*about).to_owned()]
            })
            .collect();
        let row = |(name, about): (&str, &str), now: String, from: &str| {
            vec![name.to_owned(), now, from.to_owned(), about.to_owned()]
        };
        let from = |set: bool, otherwise: &'static str| if set { "/set" } else { otherwise };
        let most = self.applied(npc).limits.turn_tokens.to_string();
        rows.push(row(MAX_TOKENS, most, from(self.max_tokens.is_some(), "the NPC")));
        let thinking = match self.thinking {
            None => "-",
            Some(true) => "on",
            Some(false) => "off",
        };
        let otherwise = if self.begun_thinking.is_some() { "the start" } else { "the model" };
        rows.push(row(THINKING, thinking.to_owned(), from(self.thinking != self.begun_thinking, otherwise)));
        rows
    }
}

/// Returns the names of all options.
pub fn names() -> impl Iterator<Item = &'static str> {
    FIELDS.iter().map(|(name, _)| *name).chain([MAX_TOKENS.0, THINKING.0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_holds_until_it_is_taken_back() {
        let mut sampling = SamplingOverrides { seed: Some(7), ..SamplingOverrides::default() };
        let mut settings = Settings::new(&sampling, None);
        let npc = Npc { name: "n".into(), directive: "You are.".into(), ..Npc::default() };
        let model = Sampling { top_k: 20, ..Sampling::default() };
        let shown = |settings: &Settings, sampling: &SamplingOverrides, name: &str| {
            let rows = settings.rows(sampling, &model, &npc);
            let row = rows.into_iter().find(|row| row[0] == name).unwrap();
            format!("{} from {}", row[1], row[2])
        };
        assert_eq!(shown(&settings, &sampling, "temperature"), "0 from default");
        assert_eq!(shown(&settings, &sampling, "top_k"), "20 from the model");
        assert_eq!(shown(&settings, &sampling, "seed"), "7 from the start");
        for typed in ["temperature 0.7", "top_k=3", "seed 8", "max_tokens 99", "thinking off"] {
            settings.set(typed, &mut sampling, &npc).unwrap();
        }
        assert_eq!(shown(&settings, &sampling, "temperature"), "0.7 from /set");
        assert_eq!(shown(&settings, &sampling, "top_k"), "3 from /set");
        assert_eq!((sampling.seed, settings.thinking), (Some(8), Some(false)));
        assert_eq!(settings.applied(&npc).limits.turn_tokens, 99);
        settings.set("seed reset", &mut sampling, &npc).unwrap();
        assert_eq!(shown(&settings, &sampling, "seed"), "7 from the start");
        settings.set("reset", &mut sampling, &npc).unwrap();
        assert_eq!(shown(&settings, &sampling, "top_k"), "20 from the model");
        assert_eq!((settings.applied(&npc), settings.thinking), (npc.clone(), None));
        settings.direct("n", Some("You sing.".into()));
        assert_eq!(settings.applied(&npc).directive, "You sing.");
        settings.direct("n", None);
        assert_eq!(settings.applied(&npc).directive, "You are.");
    }

    #[test]
    fn what_cannot_be_set_is_told() {
        let mut sampling = SamplingOverrides::default();
        let mut settings = Settings::new(&sampling, None);
        let mut check = |typed: &str, expected: &str| {
            let error = settings.set(typed, &mut sampling, &Npc::default()).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{typed}: {error}");
        };
        check("temprature 1", "there is no `temprature` to be set\nhint: /set temperature");
        check("nothing 1", "there is no `nothing` to be set\nhint: one of temperature, top_p");
        check("top_p 2", "`top_p` is a number from 0 to 1, not `2`\nhint: /set top_p reset");
        check("seed x", "`seed` is a whole number of at least 0, not `x`");
        check("temperature", "`temperature` is a number from 0 up, not ``");
        check("temperature NaN", "`temperature` is a number from 0 up");
        check("thinking maybe", "`thinking` is on or off");
        assert_eq!(sampling, SamplingOverrides::default());
    }
}
