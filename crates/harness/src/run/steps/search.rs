//! A step that searches documents: the caller's knowledge, a folder of the work directory, or a
//! list.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::work::plain;
use crate::error::chain;
use crate::jinx::Search;
use crate::jinx::template::{Scope, fill};
use crate::knowledge::{Error, Hit, IndexCache, Knowledge, Query, Retrieval};
use crate::run::session::{Caller, Notice};
use crate::types::ToolResult;

/// A search with its values filled in.
pub(super) struct Asked {
    query: String,
    /// `None` uses the setting of the knowledge.
    k: Option<usize>,
    within: Option<Value>,
    whole: bool,
    least: f64,
}

impl Asked {
    pub(super) fn of(search: &Search, scope: &Scope) -> Result<Self, String> {
        let filled = |value: &Option<Value>| value.as_ref().map(|value| fill(value, scope)).transpose();
        let k = match filled(&search.k)?.unwrap_or_default() {
            Value::Null => None,
            // Fewer than none makes no sense.
            k => Some(k.as_i64().ok_or_else(|| format!("`k` is a number, not {k}"))?.max(0)),
        };
        Ok(Asked {
            query: plain(fill(&search.query, scope)?),
            k: k.and_then(|k| usize::try_from(k).ok()),
            within: filled(&search.within)?.filter(|within| !within.is_null()),
            whole: search.whole,
            least: search.least,
        })
    }

    /// The passages found, or why the search isn't possible.
    pub(super) fn run(&self, caller: &Caller) -> ToolResult {
        match self.found(caller) {
            Ok(hits) => ToolResult::succeeded(serde_json::to_value(hits).unwrap_or_default()),
            Err(reason) => ToolResult::failed(reason),
        }
    }

    fn found(&self, caller: &Caller) -> Result<Vec<Hit>, String> {
        let cache: &IndexCache = &caller.session.knowledge;
        let told = |error: Error| chain(&error);
        let (opened, knowledge, shown) = match &self.within {
            None => {
                let knowledge = known(caller)?;
                (cache.open(&knowledge.folder, self.whole).map_err(told)?, knowledge.clone(), None)
            }
            Some(Value::String(folder)) => {
                let path = inside(caller, folder)?;
                (cache.open(&path, self.whole).map_err(told)?, Knowledge::of(path), Some(folder))
            }
            Some(list) => {
                let opened = cache.of(list, self.whole);
                let opened =
                    opened.ok_or("`in` is a folder, or a list of documents `{id, title, url, text}`")?;
                (opened, Knowledge::of(PathBuf::new()), None)
            }
        };
        if opened.new {
            for problem in &opened.index.problems {
                caller.session.notify(&Notice::Warning(&problem.to_string()));
            }
        }
        let query = Query {
            text: &self.query,
            retrieval: knowledge.retrieval,
            k: self.k.unwrap_or(knowledge.k),
            least: self.least,
        };
        let mut hits = if knowledge.retrieval.embeds() {
            let model = caller.session.models.embedding(&knowledge.model).map_err(|error| chain(&error))?;
            let embedder = model.embedder().ok_or_else(|| {
                let name = &knowledge.model;
                format!("`{name}` makes no vectors here: name an embedding model by `knowledge.model`, or use `bm25`")
            })?;
            let vectors = cache.vectors(&opened, embedder).map_err(told)?;
            opened.index.search(&query, Some((&vectors, embedder))).map_err(told)?
        } else {
            opened.index.search(&query, None).map_err(told)?
        };
        for hit in hits.iter_mut().filter(|hit| hit.url.is_empty()) {
            if let Some(folder) = shown {
                hit.url = Path::new(folder).join(&hit.file).to_string_lossy().into_owned();
            }
        }
        Ok(hits)
    }
}

/// The caller's knowledge.
fn known<'a>(caller: &Caller<'a, '_>) -> Result<&'a Knowledge, String> {
    let own = caller.npc.and_then(|npc| npc.knowledge.as_ref()).or(caller.team.knowledge.as_ref());
    let knowledge = own.ok_or(
        "there are no documents to search: `knowledge: {folder: …}` in the team's .ctx or the .npc says where they are",
    )?;
    match knowledge.retrieval {
        Retrieval::None => Err("nothing is looked up here: `knowledge.retrieval` is `none`".to_owned()),
        Retrieval::Golden => Err("the documents that are needed are in the prompt".to_owned()),
        _ => Ok(knowledge),
    }
}

/// A folder of the work directory.
/// It is read without a sandbox, so it must not be anywhere else.
fn inside(caller: &Caller, folder: &str) -> Result<PathBuf, String> {
    let work = caller.session.sandbox.work();
    let path = work.join(folder);
    let missing = |source| chain(&Error::Folder { path: folder.into(), source });
    let real = path.canonicalize().map_err(missing)?;
    if !real.starts_with(work.canonicalize().map_err(missing)?) {
        return Err(format!("{folder} is not in the work directory; only what lies there is searched"));
    }
    Ok(real)
}
