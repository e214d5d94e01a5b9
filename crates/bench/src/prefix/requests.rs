//! Requests of `bench prefix`: those of three made-up agents that share skills, or those that
//! agents made in a run.
//!
//! The made-up texts are random words with a fixed seed, since the cache doesn't depend on their
//! meaning.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use alara_engine::{Message, Request, Segment};
use alara_harness::trace::{self, Record};
use jiff::Timestamp;

use crate::{Error, run_file};

/// Names and skills of the agents in the trace.
pub const AGENTS: [(&str, &[&str]); 3] =
    [("builder", &["a", "b"]), ("reviewer", &["a", "c"]), ("releaser", &["a", "b", "d"])];

/// Number of turns per agent.
const TURNS: usize = 20;

const WORDS: [&str; 16] = [
    "house", "the", "of", "kitchen", "reading", "because", "about", "in", "water", "and", "tree", "is",
    "with", "number", "to", "old",
];

/// A generator of random words.
pub struct Text(pub u64);

impl Text {
    /// Generates `count` words.
    pub fn words(&mut self, count: usize) -> String {
        let words = (0..count).map(|_| {
            // SplitMix64: <https://prng.di.unimi.it/splitmix64.c>.
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = self.0;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            WORDS[((z ^ (z >> 31)) % WORDS.len() as u64) as usize]
        });
        words.collect::<Vec<_>>().join(" ")
    }
}

/// Creates a static segment with this name.
pub fn segment(name: &str, text: String) -> Segment {
    Segment { name: name.to_owned(), text }
}

/// Returns the requests of the trace in order: the agents take turns.
/// Their answers are fixed, so that every model gets the same prompts.
pub fn trace(words: usize) -> Vec<Request> {
    let skill =
        |name: &str| segment(name, format!("# {name}\n\n{}", Text(name.as_bytes()[0].into()).words(words)));
    let mut agents: Vec<Request> = AGENTS
        .iter()
        .map(|(name, skills)| {
            let context = segment("context", Text(1).words(words / 2));
            let directive = segment("directive", format!("You are the {name}."));
            let system =
                [context].into_iter().chain(skills.iter().map(|name| skill(name))).chain([directive]);
            Request { system: system.collect(), max_tokens: Some(4), ..Request::default() }
        })
        .collect();
    let mut text = Text(2);
    let mut requests = Vec::new();
    for _ in 0..TURNS {
        for agent in &mut agents {
            agent.messages.push(Message::user(text.words(6)));
            requests.push(agent.clone());
            agent.messages.push(Message::assistant(text.words(4), Vec::new()));
        }
    }
    requests
}

/// A request that an agent made.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The request, with the recorded answer.
    pub request: Request,
    /// Number of the task that it was made for; a task's requests are consecutive.
    pub task: usize,
}

/// Returns the requests of agents in a run of `bench tasks`, whose traces are next to its file.
/// For a trace, returns the requests in it.
/// They are in the order of their answers.
///
/// # Errors
/// The file or one of its traces can't be read, or contains no requests.
pub fn recorded(path: &Path) -> Result<Vec<Recorded>, Error> {
    let traces = match run_file::read(path) {
        Ok(run) => {
            let beside = path.parent().unwrap_or(Path::new(""));
            let names: BTreeSet<&str> = run.attempts.iter().map(|attempt| attempt.trace.as_str()).collect();
            names.into_iter().filter(|name| !name.is_empty()).map(|name| beside.join(name)).collect()
        }
        // Not a run, but possibly a trace.
        Err(Error::NoHeader { .. } | Error::Record { .. }) => vec![path.to_owned()],
        Err(error) => return Err(error),
    };
    let mut requests: Vec<(Timestamp, Recorded)> = Vec::new();
    for (task, trace) in traces.iter().enumerate() {
        let mut conversations: BTreeMap<String, Vec<Record>> = BTreeMap::new();
        for line in trace::lines(trace).map_err(Error::Harness)? {
            let records = conversations.entry(line.entry.scope.clone()).or_default();
            if let Record::Assistant { message, .. } = &*line.entry.record {
                let request = Request {
                    max_tokens: None,
                    answer: Some(message.clone()),
                    // Constraints on the answer don't change the prompt.
                    schema: None,
                    ..trace::request(&*records)
                };
                requests.push((line.time.parse().unwrap_or_default(), Recorded { request, task }));
            }
            records.push((*line.entry.record).clone());
        }
    }
    if requests.is_empty() {
        return Err(Error::NoRequests { path: path.to_owned() });
    }
    requests.sort_by_key(|(time, _)| *time);
    Ok(requests.into_iter().map(|(_, request)| request).collect())
}
