//! The grammar of a call that is a fenced block.

use super::arguments::{Rules, Term, unfit};
use super::schema::Together;
use super::{GrammarError, SchemaError, schema, schema_error};
use crate::chat::formats::{Tagged, fences};
use crate::request::Tool;

impl Rules<'_> {
    /// The blocks that call `tool`: the text after the mark on the first line, and the rest.
    /// Unless the tool is strict, keywords that can't be guaranteed are left out.
    pub(super) fn block(&mut self, tool: &Tool) -> Result<Vec<(&'static str, String)>, GrammarError> {
        let strict = self.exact_block(tool);
        let refusal = match strict {
            Err(refusal) if !tool.strict => refusal,
            outcome => return outcome.map_err(|refusal| schema_error(tool, refusal)),
        };
        let loose = schema::loosen(&tool.parameters, refusal, |parameters| {
            self.exact_block(&Tool { parameters: parameters.clone(), ..tool.clone() })
        });
        let (blocks, left_out) = loose.map_err(|refusal| schema_error(tool, refusal))?;
        let name = &tool.name;
        self.loosened.extend(left_out.into_iter().map(|refusal| format!("tool {name}: {refusal}")));
        Ok(blocks)
    }

    fn exact_block(&mut self, tool: &Tool) -> Result<Vec<(&'static str, String)>, SchemaError> {
        self.go_on()?;
        let Some((name, _)) = fences::lines(tool) else {
            let schema = schema::arguments(&tool.parameters, self.string_limit)?;
            let json = self.json(&schema)?;
            let whole = self.sequence(&[Term::Rule(json), Term::Literal(fences::CLOSE.into())]);
            return Ok(vec![("\n", whole)]);
        };
        let mut properties =
            schema::properties(&tool.parameters, Together::Exactly, self.string_limit)?.into_iter();
        let lines = properties.find(|property| property.name == name);
        let lines = lines.ok_or_else(|| unfit("the code format takes one text"))?;
        let block = Tagged { open: "", string: "", other: "", close: fences::CLOSE };
        let lines = self.raw_string(&lines.schema, &block, false)?;
        let lines = self.sequence(&[lines]);
        let mut blocks = Vec::new();
        let mut behind = Vec::new();
        if let Ok(schema) = schema::arguments(&fences::fenced(tool, name), self.string_limit) {
            let json = self.json(&schema)?;
            let head = Term::Literal(format!("{}\n", fences::JSON));
            behind.push(self.sequence(&[head, Term::Rule(json), Term::Literal(fences::CLOSE.into())]));
        }
        let others = fences::others(tool, name);
        let has_others = others["properties"].as_object().is_some_and(|others| !others.is_empty());
        if others["required"].as_array().is_none_or(Vec::is_empty) {
            blocks.push(("\n", lines.clone()));
        }
        if has_others {
            // The first line of a call without arguments ends after its mark.
            let mut some = others.clone();
            some["minProperties"] = 1.into();
            let schema = schema::arguments(&some, self.string_limit)
                .or_else(|_| schema::arguments(&others, self.string_limit))?;
            let json = self.json(&schema)?;
            behind
                .push(format!("{} {lines}", self.sequence(&[Term::Rule(json), Term::Literal("\n".into())])));
        }
        if !behind.is_empty() {
            blocks.push((" ", format!("({})", behind.join(" | "))));
        }
        Ok(blocks)
    }
}
