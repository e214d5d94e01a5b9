//! Chooses the chat template of a model file: the given one, else the file's own, else that of its
//! family.
//!
//! A file may have several, with names.
//! As in Hugging Face's `get_chat_template`, `tool_use` is for requests with tools, and the default
//! one for all others.

use alara_text::chat::{ChatTemplate, Family, TemplateError, Traits};
use alara_text::gguf::Gguf;
use alara_text::tokenizer::Tokenizer;

use crate::{Error, Result};

/// The metadata key of a file's template; named templates have the name appended.
const KEY: &str = "tokenizer.chat_template";

/// The chat template of a model file.
#[derive(Debug)]
pub struct Chosen {
    /// The compiled template.
    pub template: ChatTemplate,
    /// The model's family, if it can be determined with certainty.
    pub family: Option<&'static Family>,
    /// Why the template isn't the file's own, as a message.
    pub note: Option<String>,
}

/// The chat template of the model in `gguf`.
/// `given`, a template's source, takes precedence over the file's own, and that over the built-in
/// one of the model's family.
/// The built-in one is for files without a template or with one that can't be compiled.
/// A template of only whitespace counts as absent.
///
/// # Errors
/// If the given template can't be compiled, or the file's can't be used and its family is unknown.
pub fn chat_template(gguf: &Gguf, tokenizer: &Tokenizer, given: Option<&str>) -> Result<Chosen> {
    let text = |id: Option<u32>| id.and_then(|id| tokenizer.token_text(id)).unwrap_or_default();
    let (bos, eos) = (text(tokenizer.bos()), text(tokenizer.eos()));
    let metadata = gguf.metadata();
    let mut name = String::new();
    for key in ["general.name", "general.basename", "general.finetune"] {
        name = format!("{name} {}", metadata.str(key)?.unwrap_or_default());
    }
    let family = Family::of(&Traits {
        architecture: metadata.str("general.architecture")?.unwrap_or_default(),
        name: &name,
        special: &|text| tokenizer.id(text).is_some(),
        bos,
        eos,
    })
    .map_err(|message| Error::FamilyTable { message })?;

    if let Some(source) = given {
        let template = ChatTemplate::new(source, bos, eos)?.with_name("the chat template that was given");
        return Ok(Chosen { template, family, note: None });
    }
    let file = || gguf.name().to_owned();
    let own = |name: &str| -> Result<Option<std::result::Result<ChatTemplate, TemplateError>>> {
        let key = if name.is_empty() { KEY.to_owned() } else { format!("{KEY}.{name}") };
        let source = metadata.str(&key)?.filter(|source| !source.trim().is_empty());
        let named =
            |template: ChatTemplate| template.with_name(format!("the chat template of {} (`{key}`)", file()));
        Ok(source.map(|source| ChatTemplate::new(source, bos, eos).map(named)))
    };
    let (default, tool_use) =
        (own("")?.map_or_else(|| own("default"), |own| Ok(Some(own)))?, own("tool_use")?);
    let (own, tool_use) = match (default, tool_use) {
        // A single template is used for all requests.
        (None, tool_use) => (tool_use, None),
        both => both,
    };
    let (family, why) = match (own, family) {
        (Some(Ok(template)), _) => {
            let (template, note) = match tool_use {
                None => (template, None),
                Some(Ok(tool_use)) => (template.with_tool_use(tool_use), None),
                Some(Err(reason)) => {
                    let note = format!(
                        "{} has a broken chat template for tools ({reason}); its default one is used",
                        file()
                    );
                    (template, Some(note))
                }
            };
            return Ok(Chosen { template, family, note });
        }
        (Some(Err(reason)), None) => return Err(Error::BrokenTemplate { file: file(), reason }),
        (None, None) => {
            return Err(Error::NoTemplate { file: file(), families: Family::names().join(", ") });
        }
        (Some(Err(reason)), Some(family)) => (family, format!("has a broken chat template ({reason})")),
        (None, Some(family)) => (family, "has no chat template".to_owned()),
    };
    let template = ChatTemplate::new(family.template(), bos, eos)?
        .with_variables(family.variables.clone())
        .with_name(format!("the built-in chat template for {}", family.name));
    let note = format!("{} {why}; the built-in one for {} is used", gguf.name(), family.name);
    Ok(Chosen { template, family: Some(family), note: Some(note) })
}
