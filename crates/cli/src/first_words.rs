//! Handles first messages from users new to alara: small talk, or a single word.
//! Also has the note that the model that ships is only a demonstration.

use std::path::Path;

use alara_harness::Team;
use anyhow::bail;

use crate::{advice, ask, ui};

/// The reply to a greeting, or to a question about alara itself.
const ABOUT: &str = "\
I am alara: I do tasks with files, a shell and Python in this folder.
The model that ships with me is a tiny demonstration, and often wrong.
Before anything that was here is removed or overwritten, you are asked.
Three things to try:
  alara run \"create a file hello.txt that contains the word hello\"
  alara models list        better models, one command away
  alara --help             what else there is";

/// The reply to thanks and farewells.
const WELCOME: &str = "You are welcome.";

const GREETINGS: &[&str] = &[
    "hi",
    "hii",
    "hello",
    "helo",
    "hey",
    "heya",
    "hiya",
    "yo",
    "howdy",
    "hallo",
    "hola",
    "bonjour",
    "ciao",
    "moin",
    "servus",
    "salut",
    "ahoj",
    "ola",
    "namaste",
    "guten tag",
    "guten morgen",
    "greetings",
    "good morning",
    "good afternoon",
    "good evening",
    "good day",
    "hello world",
    "how are you",
    "how are you doing",
    "how are you today",
    "how is it going",
    "how's it going",
    "hows it going",
    "how do you do",
    "what's up",
    "whats up",
    "sup",
    "nice to meet you",
    "are you there",
    "anybody there",
    "anyone there",
    "is anybody there",
    "wie geht's",
    "wie gehts",
];

const ABOUT_ITSELF: &[&str] = &[
    "who are you",
    "what are you",
    "who is this",
    "what is this",
    "what's this",
    "what is your name",
    "what's your name",
    "whats your name",
    "what is alara",
    "what's alara",
    "who made you",
    "who created you",
    "who built you",
    "what can you do",
    "what can you do for me",
    "what do you do",
    "what can i do",
    "what can i do here",
    "what can i ask you",
    "what can i ask",
    "how do you work",
    "how does this work",
    "how can you help",
    "how can you help me",
    "can you help",
    "can you help me",
    "help",
    "help me",
    "i need help",
    "please help",
    "tell me about yourself",
    "introduce yourself",
    "describe yourself",
    "how do i use this",
    "how do i use you",
    "how do i start",
    "how do i begin",
    "what should i type",
    "what do i do now",
    "what model are you",
    "which model are you",
    "what model is this",
    "which model is this",
    "are you a robot",
    "are you a bot",
    "are you human",
    "are you an ai",
    "are you real",
    "are you chatgpt",
    "do you speak english",
    "do you understand me",
    "can you hear me",
    "wer bist du",
    "was bist du",
    "was kannst du",
];

const THANKS: &[&str] = &[
    "thanks",
    "thank you",
    "thank you very much",
    "thank you so much",
    "thanks a lot",
    "many thanks",
    "thx",
    "danke",
    "merci",
    "bye",
    "goodbye",
    "good bye",
    "bye bye",
    "see you",
    "see you later",
    "good night",
    "cheers",
];

/// Words that may follow a phrase without changing its meaning.
const ADDRESSED: &[&str] =
    &[" alara", " there", " again", " everyone", " everybody", " friend", " please", " all", " bot"];

/// Replies to small talk, which the model that ships can't do.
/// `None` for any other text, however it begins: a task must never be mistaken for small talk.
pub fn small_talk(text: &str) -> Option<&'static str> {
    let text = text.to_lowercase().replace('’', "'");
    let phrases: Vec<String> =
        text.split(['.', ',', '!', '?', ';', ':', '\n']).map(plain).filter(|part| !part.is_empty()).collect();
    let mut answer = None;
    for phrase in &phrases {
        // A greeting may precede a question without a comma.
        let rest = GREETINGS.iter().find_map(|greeting| phrase.strip_prefix(greeting)?.strip_prefix(' '));
        let reply = [Some(phrase.as_str()), rest].into_iter().flatten().find_map(|phrase| {
            let short = ADDRESSED.iter().find_map(|word| phrase.strip_suffix(word)).unwrap_or(phrase);
            let one_of = |list: &[&str]| list.contains(&phrase) || list.contains(&short);
            if one_of(THANKS) {
                Some(WELCOME)
            } else {
                (one_of(GREETINGS) || one_of(ABOUT_ITSELF)).then_some(ABOUT)
            }
        })?;
        answer = answer.filter(|answer| *answer == ABOUT).or(Some(reply));
    }
    answer
}

/// Normalizes a phrase: single spaces, no punctuation at the ends.
fn plain(phrase: &str) -> String {
    let words = phrase.split_whitespace().collect::<Vec<_>>().join(" ");
    words.trim_matches(|c: char| !c.is_alphanumeric()).to_owned()
}

/// Explains that the model that ships is a demonstration, and once a day suggests a better one for
/// this machine.
pub fn demonstration() -> String {
    let what = "the model that ships is a small demonstration, and often wrong";
    advice::once_a_day().map_or_else(|| what.to_owned(), |better| format!("{what}; {better}"))
}

/// Other meanings of a one-word task.
#[derive(Debug, PartialEq, Eq)]
pub enum Meaning {
    /// A command of alara.
    Command,
    /// A file or a folder in the work directory.
    File,
    /// An NPC or a sub-team.
    Npc,
}

/// Returns the possible meanings of `task`, if it is one word.
pub fn meanings(task: &str, commands: &[String], team: &Team, work: &Path) -> Vec<Meaning> {
    let word = task.trim();
    if word.is_empty() || word.contains(char::is_whitespace) {
        return Vec::new();
    }
    let bare = word.trim_end_matches(['?', '!', '.']).to_lowercase();
    let is_command = commands.contains(&bare);
    let is_npc = team.npcs.iter().any(|npc| npc.name.eq_ignore_ascii_case(&bare))
        || team.teams.iter().any(|team| team.name.eq_ignore_ascii_case(&bare));
    let is_file = work.join(word).symlink_metadata().is_ok();
    let found = [(is_command, Meaning::Command), (is_file, Meaning::File), (is_npc, Meaning::Npc)];
    found.into_iter().filter_map(|(is, meaning)| is.then_some(meaning)).collect()
}

/// The meaning chosen by the user.
#[derive(Debug, PartialEq, Eq)]
pub enum Meant {
    /// This task, for the named NPC or the team's lead.
    Task { task: String, npc: Option<String> },
    /// The command with this name.
    Command(String),
}

/// Asks which of these meanings a single word has.
///
/// # Errors
/// There is no terminal to ask at, or the user chose none; the error explains how to be explicit.
pub fn ask(word: &str, meanings: &[Meaning]) -> anyhow::Result<Meant> {
    let ways: Vec<(String, String)> = meanings
        .iter()
        .map(|meaning| match meaning {
            Meaning::Command => ("a command".to_owned(), format!("alara {}", command(word))),
            Meaning::File => ("a file or folder here".to_owned(), format!("alara run \"explain {word}\"")),
            Meaning::Npc => ("an NPC".to_owned(), format!("alara run -n {word} \"what it shall do\"")),
        })
        .collect();
    let what: Vec<&str> = ways.iter().map(|(what, _)| what.as_str()).collect();
    let what = what.join(", and ");
    if !ask::is_possible() {
        let hints: Vec<&str> = ways.iter().map(|(_, way)| way.as_str()).collect();
        bail!(
            "`{word}` is no task: it is the name of {what}\nhint: {}; as a task, in more words, or with -n NPC",
            hints.join("; or ")
        );
    }
    ui::note(&format!("`{word}` is the name of {what}. What is meant?"));
    for (at, (_, way)) in ways.iter().enumerate() {
        ui::note(&format!("  {}: {way}", at + 1));
    }
    ui::note(&format!("  t: the task \"{word}\", as it is"));
    loop {
        let Some(line) = ask::text("choose, or n for nothing: ") else { bail!("nothing was chosen") };
        let chosen = line.trim().parse::<usize>().ok().and_then(|at| meanings.get(at.checked_sub(1)?));
        match (chosen, line.trim()) {
            (Some(Meaning::Command), _) => return Ok(Meant::Command(command(word))),
            (Some(Meaning::File), _) => {
                return Ok(Meant::Task { task: format!("explain {word}"), npc: None });
            }
            (Some(Meaning::Npc), _) => {
                let Some(task) = ask::text(&format!("what shall {word} do? ")) else {
                    bail!("nothing was chosen")
                };
                return Ok(Meant::Task { task, npc: Some(word.to_owned()) });
            }
            (None, "t") => return Ok(Meant::Task { task: word.to_owned(), npc: None }),
            (None, "n" | "no") => bail!("nothing was chosen"),
            _ => {}
        }
    }
}

/// Returns the command that a word names.
fn command(word: &str) -> String {
    word.trim_end_matches(['?', '!', '.']).to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_talk_is_told_from_tasks() {
        let talk = |text: &str, answer: &str| assert_eq!(small_talk(text), Some(answer), "{text}");
        for text in [
            "hi",
            "Hello!",
            "hey there",
            "hi alara",
            "Good morning.",
            "hi, who are you?",
            "hi who are you",
            "Who are you?",
            "what can you do",
            "What’s your name?",
            "help",
            "HELP!",
            "help me please",
            "Hello. How are you?",
            "hello again",
            "thanks, what can you do?",
            "  hi  ",
            "hi :)",
            "- hello -",
            "what is alara?",
        ] {
            talk(text, ABOUT);
        }
        for text in ["thanks", "Thank you!", "bye", "thank you very much, bye"] {
            talk(text, WELCOME);
        }
        for task in [
            "help me rename the files",
            "help test.py",
            "hi.txt",
            "say hi",
            "delete hi",
            "hello.py",
            "test",
            "who",
            "run tests",
            "what is in notes.txt?",
            "who are you in notes.txt",
            "hi, create a file a.txt",
            "hello world program in python",
            "thanks, now delete it",
            "",
            " ",
            "-",
            "?",
            "yes",
            "no",
            "ok",
            "explain test.py",
            "hi hi hi.txt",
            "what can you do with a.csv",
            "rm hi",
            "README",
            "good",
            "how many files are here?",
            "bye.sh",
        ] {
            assert_eq!(small_talk(task), None, "{task}");
        }
    }

    #[test]
    fn a_single_word_may_be_a_name() {
        let team = Team::stock("alara").unwrap();
        let work = tempfile::tempdir().unwrap();
        std::fs::write(work.path().join("hi"), "").unwrap();
        std::fs::create_dir(work.path().join("doctor")).unwrap();
        let commands = ["doctor".to_owned(), "help".to_owned()];
        let check = |task: &str, expected: &[Meaning]| {
            assert_eq!(meanings(task, &commands, &team, work.path()), expected, "{task}");
        };
        check("hi", &[Meaning::File]);
        check("help", &[Meaning::Command]);
        check("Help?", &[Meaning::Command]);
        check(" doctor ", &[Meaning::Command, Meaning::File]);
        check("worker", &[Meaning::Npc]);
        check("research", &[Meaning::Npc]);
        check("explain hi", &[]);
        check("nonsense", &[]);
        check("", &[]);
        let error = ask("help", &[Meaning::Command]).unwrap_err().to_string();
        assert!(error.contains("hint: alara help; as a task"), "{error}");
    }
}
